"""The page's own routes. They are no part of the API: what they answer changes with the page."""

from fastapi import APIRouter, Request, Response

from proxy.admin.http.routes.common import Replica
from proxy.admin.live import pages

router = APIRouter(include_in_schema=False)

# Nothing from elsewhere, and nobody's frame around it.
_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


async def file(request: Request) -> Response:
    """One of the page's files."""
    kind, content = pages.file(request.url.path)
    return Response(content, headers={"content-type": kind, **_HEADERS})


for _path in pages.FILES:
    router.add_api_route(_path, file, methods=["GET"])


@router.get("/v1/live")
async def figures(request: Request, replica: Replica) -> Response:
    """What the page shows."""
    kind, content = replica.admin.figures.page(request.query_params)
    return Response(content, headers={"content-type": kind, "cache-control": "no-store"})

"""The routes of the live page. They are not part of the API: their replies change with the page."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from proxy.admin.http import documentation
from proxy.admin.http.routes.common import Operations, Route
from proxy.admin.live import pages
from proxy.admin.live.figures import FiguresQuery, read_figures

router = APIRouter(include_in_schema=False)
_Seconds = Annotated[int, Query(ge=0, lt=10**11)]

# No content from other origins, and no embedding.
_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


async def file(request: Request) -> Response:
    """Return one of the page's files."""
    media_type, content = pages.file(request.url.path)
    return Response(content, headers={"content-type": media_type, **_HEADERS})


for _path in pages.FILES:
    router.add_api_route(_path, file, methods=["GET"])


@router.get("/docs")
async def show_documentation(request: Request) -> Response:
    """Return the documentation of the API, with its address as the caller wrote it."""
    content = documentation.render(request.app.openapi(), str(request.base_url).rstrip("/"))
    return Response(content, headers={"content-type": "text/html; charset=utf-8", **_HEADERS})


async def figures(operations: Operations, since: _Seconds = 0, topic: str = "", group: str = "") -> Response:
    """Return the page's figures after `since`, in seconds since 1970. topic, group: parts of names."""
    query = FiguresQuery(since, topic.lower(), group.lower())
    merged = await operations.gather(read_figures, query)
    reply = merged.mark(merged.value.single).present()
    peers = operations.services.peers
    if not operations.own:
        reply["replicas"] = [{"name": peers.name, "address": "this one", "answers": True, "error": None}] + [
            {
                "name": peer.label,
                "address": str(peer.where.address),
                "answers": peer.error is None,
                "error": peer.error,
            }
            for peer in await peers.others()
        ]
    content = orjson.dumps(reply)
    return Response(content, headers={"content-type": "application/json", "cache-control": "no-store"})


# Unlike those of the files, its parameters are those of this release only.
router.add_api_route("/v1/live", figures, methods=["GET"], route_class_override=Route)

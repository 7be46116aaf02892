"""The FastAPI application: routes and errors."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from proxy.admin.http import description, problems
from proxy.admin.http.names_in_paths import shown
from proxy.admin.http.problems import Refused
from proxy.admin.http.routes import (
    cluster,
    connections,
    groups,
    health,
    messages,
    metrics,
    peers,
    replica,
    session,
    traffic,
    users,
)
from proxy.admin.http.routes.common import INVALID_REQUEST
from proxy.admin.live import routes as live
from proxy.admin.live.figures import LiveFigures, read_figures
from proxy.observability.metrics.process import product_version
from proxy.operations.catalogue import OPERATIONS
from proxy.operations.failures import INTERNAL_ERROR, FailureKind, OperationFailed, failure_of
from proxy.operations.services import AdminServices
from proxy.settings.fault_text import fault_text
from remoting.errors import RemotingError

ROUTERS = (
    health.probes,
    health.router,
    session.router,
    replica.router,
    connections.router,
    connections.client_router,
    groups.router,
    cluster.router,
    messages.router,
    messages.trace_router,
    traffic.router,
    users.router,
    metrics.router,
    live.router,
    peers.router,
)


def make(services: AdminServices) -> FastAPI:
    """Return the application of a replica, and register the operations that its routes run."""
    services.workers.serve(services, OPERATIONS)
    services.workers.serve(LiveFigures(services), [read_figures])
    api = FastAPI(
        title="Gantry admin API",
        version=product_version(),
        description=description.TEXT,
        openapi_tags=[{"name": name, "description": text} for name, text in description.TAGS.items()],
        openapi_url="/openapi.json",
        # Both would load scripts from other origins.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    api.state.services = services
    for router in ROUTERS:
        api.include_router(router)
    api.state.routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    for kind, handler in _HANDLERS.items():
        api.add_exception_handler(kind, handler)
    api.openapi = lambda: description.describe(api, services.workers)  # type: ignore[method-assign]
    return api


def _operation_id(route: APIRoute) -> str:
    return route.name


# Errors.


async def _refused(request: Request, error: Refused) -> Response:
    body = problems.content(error.status, error.detail, shown(request.url.path), error.faults, error.more)
    return Response(body, error.status, {**error.headers, "content-type": problems.MEDIA_TYPE})


async def _http(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        return await _refused(request, Refused(405, f"the allowed methods are {allowed}", {"allow": allowed}))
    detail = "there is nothing at this path" if error.status_code == 404 else str(error.detail)
    return await _refused(request, Refused(error.status_code, detail, error.headers))


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes at a path; each route has only its own."""
    routes: list[APIRoute] = request.app.state.routes
    matching = (route for route in routes if route.path_regex.match(request.url.path))
    return sorted({method for route in matching for method in route.methods or ()})


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    faults = [(" ".join(map(str, fault["loc"])), fault_text(fault)) for fault in error.errors()]
    return await _refused(request, Refused(422, INVALID_REQUEST, faults=faults))


async def _failed(request: Request, error: Exception) -> Response:
    failure = failure_of(error)
    more: dict[str, Any] = {}
    if isinstance(error, OperationFailed):
        if error.missing_workers:
            more["missing_workers"] = error.missing_workers
        if error.outcomes:
            more["workers"] = [
                {"worker": outcome.worker, "status": 200}
                if outcome.failure is None
                else {"worker": outcome.worker, "status": int(outcome.failure.kind), "detail": outcome.failure.detail}
                for outcome in error.outcomes
            ]
    headers = {"Retry-After": "5"} if failure.kind is FailureKind.TOO_MANY else None
    return await _refused(request, Refused(int(failure.kind), failure.detail, headers, failure.faults, more))


async def _internal_error(request: Request, _: Exception) -> Response:
    return await _refused(request, Refused(500, INTERNAL_ERROR))


_HANDLERS: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
    Exception: _internal_error,
    Refused: _refused,
    HTTPException: _http,
    RequestValidationError: _invalid,
    OperationFailed: _failed,
    RemotingError: _failed,
    TimeoutError: _failed,
}

"""The FastAPI application: routes, errors, its own description."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from proxy.admin.http import merged_schema, problems
from proxy.admin.http.problems import JointProblem, Problem, Refused
from proxy.admin.http.routes import cluster, connections, groups, health, metrics, replica, traffic
from proxy.admin.live import routes as live
from proxy.admin.replica import AdminReplica
from proxy.observability.metrics.process import product_version
from proxy.operations.client_tools import ClientRefused
from proxy.operations.configuration import InvalidConfiguration
from proxy.operations.groups import NoSuchGroup
from proxy.operations.operator_channel import BrokerRefused
from proxy.operations.paging import BadCursor
from remoting.codes import ResponseCode
from remoting.errors import BodyError, ConsumerNotOnline, Overloaded, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.errors import RequestTimeout as RemotingTimeout

_TEXT = """
What operators ask of one replica, and have it do. Reads and writes are separate roles: GET needs *read*, everything
else *write*. A bearer token or a client certificate gives them; what callers without either may do, `admin.local` and
`admin.remote` say. Health is told to everybody. Errors are problem details (RFC 9457). Writes are audited.
"""
_TAGS = {
    "health": "May clients be sent here?",
    "replica": "The replica itself: version, configuration, log levels.",
    "connections": "Connections, open and closed.",
    "clients": "Clients, whatever they speak; asking one something.",
    "groups": "Producer and consumer groups: members, skew, lag, owners, dead letters.",
    "cluster": "What is behind the replica: topics, brokers, name servers.",
    "traffic": "What happens: requests, protocol errors.",
    "metrics": "For Prometheus, and for those who know Envoy.",
    "operations": "What changes something.",
}
# Answers of brokers that say that there is no such thing.
_ABSENT = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.QUERY_NOT_FOUND,
    )
)


ROUTERS = (
    health.probes,
    health.router,
    replica.router,
    connections.router,
    connections.client_router,
    groups.router,
    cluster.router,
    traffic.router,
    metrics.router,
    live.router,
)


def make(the_replica: AdminReplica) -> FastAPI:
    """The application of a replica."""
    api = FastAPI(
        title="Gantry admin API",
        version=product_version(),
        description=_TEXT,
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        openapi_url="/openapi.json",
        # Both would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    api.state.replica = the_replica
    for router in ROUTERS:
        api.include_router(router)
    api.state.routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    for kind, handler in _HANDLERS.items():
        api.add_exception_handler(kind, handler)
    api.openapi = lambda: _described(api)  # type: ignore[method-assign]
    return api


def _operation_id(route: APIRoute) -> str:
    return route.name


# Errors.


def _answer(
    request: Request, status: int, detail: str, faults: Any = (), headers: dict[str, str] | None = None
) -> Response:
    content = problems.content(status, detail, request.url.path, faults)
    return Response(content, status, {**(headers or {}), "content-type": problems.MEDIA_TYPE})


async def _refused(request: Request, error: Refused) -> Response:
    return _answer(request, error.status, error.detail, error.faults, error.headers)


async def _http(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        return _answer(request, 405, f"what can be done here is {allowed}", (), {"allow": allowed})
    detail = "there is nothing at this path" if error.status_code == 404 else str(error.detail)
    return _answer(request, error.status_code, detail, (), dict(error.headers or {}))


def _allowed(request: Request) -> list[str]:
    """The methods of all routes at a path: each route knows only its own."""
    routes: list[APIRoute] = request.app.state.routes
    fitting = (route for route in routes if route.path_regex.match(request.url.path))
    return sorted({method for route in fitting for method in route.methods or ()})


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    faults = [(" ".join(map(str, fault["loc"])), str(fault["msg"])) for fault in error.errors()]
    return _answer(request, 422, "the request is not as described", faults)


async def _remoting(request: Request, error: RemotingError) -> Response:
    if isinstance(error, BrokerRefused):
        status = 404 if error.answer in _ABSENT else 409
    else:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
    return _answer(request, status, str(error))


# The first that fits.
_STATUS: tuple[tuple[type[RemotingError], int], ...] = (
    (TopicNotExist, 404),
    (ConsumerNotOnline, 404),
    (ServiceUnavailable, 503),
    (Overloaded, 503),
    (RemotingTimeout, 504),
    (BodyError, 502),
)


async def _timeout(request: Request, _: TimeoutError) -> Response:
    return _answer(request, 504, "no answer came in time")


async def _absent(request: Request, error: Exception) -> Response:
    return _answer(request, 404, str(error))


async def _bad_cursor(request: Request, _: BadCursor) -> Response:
    return _answer(request, 404, "this list has no page with that cursor")


async def _conflict(request: Request, error: Exception) -> Response:
    return _answer(request, 409, str(error))


async def _invalid_configuration(request: Request, error: InvalidConfiguration) -> Response:
    faults = [("configuration", complaint) for complaint in error.complaints]
    return _answer(request, 409, "the configuration is not valid; nothing has changed", faults)


async def _mistake(request: Request, _: Exception) -> Response:
    return _answer(request, 500, problems.MISTAKE)


_HANDLERS: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
    Exception: _mistake,
    Refused: _refused,
    HTTPException: _http,
    RequestValidationError: _invalid,
    RemotingError: _remoting,
    TimeoutError: _timeout,
    NoSuchGroup: _absent,
    BadCursor: _bad_cursor,
    ClientRefused: _conflict,
    InvalidConfiguration: _invalid_configuration,
}


# The description.

_PROBLEM = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_BEARER: dict[str, list[str]] = {"bearer": []}
_CERTIFICATE: dict[str, list[str]] = {"certificate": []}


def _described(api: FastAPI) -> dict[str, Any]:
    """OpenAPI: as FastAPI makes it, but for errors and roles, which are not its own."""
    if api.openapi_schema is not None:
        return api.openapi_schema
    described = get_openapi(
        title=api.title,
        version=api.version,
        description=api.description,
        routes=api.routes,
        tags=api.openapi_tags,
    )
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    colleagues = api.state.replica.admin.colleagues
    schemas.update(_schemas_of_problems(Problem if colleagues is None else JointProblem))
    described["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "certificate": {"type": "mutualTLS"},
    }
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            _describe(path, method, operation)
    if colleagues is not None:
        merged_schema.describe(described, colleagues.all)
    api.openapi_schema = described
    return described


def _schemas_of_problems(kind: type[Problem]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "Problem": schema}


def _describe(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "422" in responses:
        responses["422"] = {"description": "The request is not as described", "content": _PROBLEM}
    if not path.startswith("/v1") and path not in ("/metrics", "/stats"):
        operation["security"] = []
    elif method == "get":
        operation["security"] = [{}, _BEARER, _CERTIFICATE]
    else:
        operation["security"] = [_BEARER, _CERTIFICATE]
        responses["401"] = {"description": "It needs a token, or the token is nobody's", "content": _PROBLEM}
        responses["403"] = {"description": "The caller has not the role *write*", "content": _PROBLEM}
    if "{" in path:
        responses["404"] = {"description": "There is no such thing", "content": _PROBLEM}
    responses["default"] = {"description": "What else can go wrong", "content": _PROBLEM}

"""The OpenAPI description, with details beyond FastAPI's and the differences with several workers."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from proxy.admin.http import problems
from proxy.admin.http.problems import Problem, WorkersProblem
from proxy.operations.workers import Workers

TEXT = """
Operators read the state of a replica here, and change it. Reads and writes are separate roles: GET needs *read*, all
other methods *write*. A bearer token or a client certificate grants them; the settings `admin.local` and
`admin.remote` define the role of callers without either. Health needs no role. Errors are problem details (RFC 9457).
Writes are audited.
"""
TAGS = {
    "health": "Whether clients may be sent here.",
    "session": "Login of browsers.",
    "replica": "The replica itself: version, configuration, log levels.",
    "connections": "Connections, open and closed.",
    "clients": "Clients of both protocols, and requests to them.",
    "groups": "Producer and consumer groups: members, skew, lag, owners, dead letters.",
    "cluster": "Behind the replica: topics, brokers, name servers.",
    "messages": "Stored messages. Bodies, keys and properties need the permission of `admin.contents`.",
    "users": "Users, their policies, and decisions.",
    "traffic": "Requests and protocol errors.",
    "metrics": "For Prometheus, and in the form of Envoy's statistics.",
    "operations": "Writes.",
}
_PROBLEM = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# Every caller may log in and out.
_SESSION = "/v1/session"
_BEARER: dict[str, list[str]] = {"bearer": []}
_CERTIFICATE: dict[str, list[str]] = {"certificate": []}
# Fields that only several workers have.
_WORKER_FIELDS = ("missing_workers", "worker", "workers")
_NUMBERED = ("Connection", "ClosedConnection")
_NUMBER = {"type": "string", "pattern": r"^[0-9]{1,5}:[1-9][0-9]{0,14}$", "examples": ["1:17"]}
_NUMBER_TEXT = "of the worker, and unique in it; traffic records have both"
_TAP_TEXT = (
    " Each event has its `worker`; `missing` reports that a worker does not answer, `joined` that it does again."
)


def describe(api: FastAPI, workers: Workers) -> dict[str, Any]:
    """Return the OpenAPI document."""
    if api.openapi_schema is not None:
        return api.openapi_schema
    document = get_openapi(
        title=api.title,
        version=api.version,
        description=api.description,
        routes=api.routes,
        tags=api.openapi_tags,
    )
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "certificate": {"type": "mutualTLS"},
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _describe_operation(path, method, operation)
    if workers.several:
        _describe_workers(document, workers.numbers)
    else:
        _describe_one_worker(document)
    schemas.update(_problem_schemas(WorkersProblem if workers.several else Problem))
    api.openapi_schema = document
    return document


def _problem_schemas(kind: type[Problem]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "Problem": schema}


def _describe_operation(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "422" in responses:
        responses["422"] = {"description": "The request is not valid", "content": _PROBLEM}
    if path == _SESSION or (not path.startswith("/v1") and path not in ("/metrics", "/stats")):
        operation["security"] = []
    elif method == "get":
        operation["security"] = [{}, _BEARER, _CERTIFICATE]
    else:
        operation["security"] = [_BEARER, _CERTIFICATE]
        responses["401"] = {"description": "There is no token, or it is unknown", "content": _PROBLEM}
        responses["403"] = {"description": "The caller does not have the role *write*", "content": _PROBLEM}
    if "{" in path:
        responses["404"] = {"description": "Not found", "content": _PROBLEM}
    responses["default"] = {"description": "Other errors", "content": _PROBLEM}


def _describe_one_worker(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        for name in _WORKER_FIELDS:
            schema.get("properties", {}).pop(name, None)
    schemas.pop("WorkerDetail")
    for name in _NUMBERED:
        _set_number_type(schemas[name]["properties"]["number"], {"type": "integer"})
    _set_number_type(schemas["Client"]["properties"]["connections"]["items"], {"type": "integer"})
    number = {"type": "integer", "minimum": 1, "exclusiveMaximum": 2**53, "examples": [17]}
    for parameter in _parameters(document):
        if parameter["name"] == "number":
            parameter["schema"] = number


def _set_number_type(schema: dict[str, Any], kind: dict[str, Any]) -> None:
    schema.pop("anyOf", None)
    schema.update(kind)


def _parameters(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        parameter
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]


def _describe_workers(document: dict[str, Any], workers: range) -> None:
    schemas = document["components"]["schemas"]
    for name in _NUMBERED:
        _set_number_type(schemas[name]["properties"]["number"], {**_NUMBER, "description": _NUMBER_TEXT})
    schemas["Client"]["properties"]["connections"]["items"] = _NUMBER
    schemas["Client"]["properties"]["connections"].pop("examples", None)
    document["paths"]["/v1/tap"]["get"]["description"] += _TAP_TEXT
    for parameter in _parameters(document):
        if parameter["name"] == "number":
            parameter.pop("example", None)
            parameter.update(schema=_NUMBER, description="the connection's worker and number")
    worker = {
        "name": "worker",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": 0, "maximum": workers[-1]},
        "description": "ask only this worker; the default is the merged state of all workers",
    }
    for path, operations in document["paths"].items():
        if path.startswith("/v1"):
            for operation in operations.values():
                operation.setdefault("parameters", []).append(worker)

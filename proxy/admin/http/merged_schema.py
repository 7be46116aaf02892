"""What the API's description says where several workers answer as one."""

from typing import Any

from proxy.admin.http.aggregation_table import ROWS

_NUMBER = {"type": "string", "pattern": r"^[0-9]{1,5}:[1-9][0-9]{0,14}$", "examples": ["1:17"]}
_NUMBER_TEXT = "of the worker, and unique in it; traffic records have both"
_WORKER = {"type": "integer", "description": "the worker whose it is", "examples": [1]}
_WORKERS = {
    "type": "array",
    "items": {"type": "object", "properties": {"worker": {"type": "integer"}}, "required": ["worker"]},
    "description": "what each worker says, where they differ",
}
_MISSING = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "workers that did not answer; what they know is not in here",
}
_TAP = " Each tells its `worker`; `missing` says that one does not answer, and `joined` that it is there again."
# Things of one worker's, and things that may differ from worker to worker.
_PLACED = ("Connection", "ClosedConnection", "ProtocolError", "AuditEntry", "ReceiptHandle")
_APART = ("Setting", "SettingChange", "LogLevel", "ReplicaState", "Version")
_NUMBERED = ("Connection", "ClosedConnection")


def describe(described: dict[str, Any], workers: range) -> None:
    """Say in an OpenAPI document that there are these workers."""
    schemas = described["components"]["schemas"]
    for name in _PLACED:
        schemas[name]["properties"]["worker"] = _WORKER
    for name in _APART:
        schemas[name]["properties"]["workers"] = _WORKERS
    for name in _NUMBERED:
        schemas[name]["properties"]["number"] = {**_NUMBER, "description": _NUMBER_TEXT}
    schemas["Client"]["properties"]["connections"]["items"] = _NUMBER
    schemas["Client"]["properties"]["connections"].pop("examples", None)
    described["paths"]["/v1/tap"]["get"]["description"] += _TAP
    for method, path in ROWS:
        operation = described["paths"].get(path, {}).get(method.lower())
        if operation is not None:
            _describe(operation, schemas, workers)


def _describe(operation: dict[str, Any], schemas: dict[str, Any], workers: range) -> None:
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        if parameter["name"] == "number":
            parameter["schema"] = _NUMBER
            parameter.pop("example", None)
            parameter["description"] = "the connection's worker and number"
    parameters.append(
        {
            "name": "worker",
            "in": "query",
            "required": False,
            "schema": {"type": "integer", "minimum": 0, "maximum": workers[-1]},
            "description": "ask this worker alone; without it all workers answer as one",
        }
    )
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    name = answer.get("schema", {}).get("$ref", "").rpartition("/")[2]
    if name:
        schemas[name]["properties"]["missing_workers"] = _MISSING

"""JSON bodies: what most requests about clients, groups and routes carry."""

from typing import Any

from remoting import fastjson
from remoting.errors import BodyError


def json_object(body: bytes) -> dict[str, Any]:
    """A body that is one JSON object, in standard JSON or fastjson's dialect. Raises BodyError."""
    data = fastjson.loads(body)
    if not isinstance(data, dict):
        raise BodyError("the body is not a JSON object")
    return data

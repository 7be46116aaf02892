"""Checks: plain functions that a request passes before it is handled; one that refuses raises its error."""

from collections.abc import Callable

from proxy.context import Context
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.errors import GoAway, InvalidRequest, Overloaded, UnsupportedRequest
from remoting.requests import Direction

Check = Callable[[Context], None]


def known_code(context: Context) -> None:
    """The request table has a row for it, and clients may send it."""
    spec = context.spec
    if spec is None or spec.direction is Direction.BROKER:
        raise UnsupportedRequest(f"request code {context.code} is not supported")


def required_fields(context: Context) -> None:
    """No required ext field is missing."""
    required = context.known.required
    if not required <= context.fields.keys():
        missing = ", ".join(sorted(required - context.fields.keys()))
        raise InvalidRequest(f"{context.known.name} lacks the field {missing}")


class Drain:
    """While the replica shuts down, clients that know how are sent elsewhere."""

    def __init__(self) -> None:
        self.draining = False

    def __call__(self, context: Context) -> None:
        if (
            self.draining
            and context.command.version > GO_AWAY_VERSION
            and context.code != RequestCode.UNREGISTER_CLIENT
        ):
            raise GoAway("this replica is going away; connect again")


class Budget:
    """Bodies of all requests under way, in bytes, are bounded, whoever sent them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def __call__(self, context: Context) -> None:
        if self.used > self._limit:
            raise Overloaded(f"{self.used} bytes of requests are under way; try again later")

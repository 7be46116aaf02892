"""Hot unary handlers without a task."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from grpc_gateway.server.status import RpcError

# The attribute of a decorated function that holds the plain one.
_PLAIN = "immediate"


def immediate(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Decorates a handler that is a plain function `([self,] request, context)` and does not block.

    It gives the response, or a future of it; it ends the call otherwise by raising `RpcError` (as `context.abort` must
    be awaited), or by a future that fails with one. The server runs it while it reads: no task, no turn of the loop.
    When the client gives the call up, the future is cancelled. To everybody else, grpcio's server too, the decorated
    function is a coroutine function like any other.
    """

    @wraps(function)
    async def handle(*arguments: Any) -> Any:
        try:
            response = function(*arguments)
            return await response if isinstance(response, asyncio.Future) else response
        except RpcError as error:
            await arguments[-1].abort(error.code, error.details, tuple(error.trailing_metadata))

    setattr(handle, _PLAIN, function)
    return handle


def plain(behaviour: Callable[..., Any]) -> Callable[..., Any] | None:
    """The plain function of an `immediate` handler, bound as that is; None of any other."""
    function: Callable[..., Any] | None = getattr(behaviour, _PLAIN, None)
    owner = getattr(behaviour, "__self__", None)
    if function is None or owner is None:
        return function
    bound: Callable[..., Any] = function.__get__(owner)
    return bound

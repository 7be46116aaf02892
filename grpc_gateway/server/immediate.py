"""Hot unary handlers without a task."""

import asyncio
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import grpc

from grpc_gateway.server.status import RpcError


class Immediate:
    """Decorates the method of a servicer, a plain function `(self, request, context)` that does not block.

    It gives the response, or a future of it; it ends the call otherwise by raising `RpcError` (as `context.abort` must
    be awaited), or by a future that fails with one. The server runs it while it reads: no task, no turn of the loop.
    When the client gives the call up, the future is cancelled. On grpcio's server the decorated method is a coroutine
    function like any other.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __get__(self, instance: object, owner: type | None = None) -> "Immediate":
        return self if instance is None else Immediate(self.function.__get__(instance, owner))

    async def __call__(self, request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        try:
            response = self.function(request, context)
            return await response if isinstance(response, asyncio.Future) else response
        except RpcError as error:
            await context.abort(error.code, error.details, tuple(error.trailing_metadata))

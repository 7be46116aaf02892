"""Unary handlers that run without a task."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from grpc_gateway.server.rpc_status import RpcError
from remoting.taskless import Running

# Attribute of a decorated function that holds the undecorated one, and of that one its own deserializer.
_PLAIN = "immediate"
_READER = "reader"


def immediate(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Decorate a unary handler that is a plain function `([self,] request, context)` and does not block.

    The function returns the response, a future of it, or a running coroutine (`remoting.taskless`). To end the call
    with an error, it raises `RpcError`, or its future or coroutine fails with one; it cannot await `context.abort`. Our
    server runs it within the read that completes the request, without a task or another turn of the event loop, and
    cancels the future if the client cancels the call.
    For other servers, grpcio's included, the decorated function is an ordinary coroutine function.
    """

    @wraps(function)
    async def handle(*arguments: Any) -> Any:
        try:
            response = function(*arguments)
            return await response if isinstance(response, asyncio.Future | Running) else response
        except RpcError as error:
            await arguments[-1].abort(error.code, error.details, tuple(error.trailing_metadata))

    setattr(handle, _PLAIN, function)
    return handle


def read_by(reader: Callable[[bytes], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function below `immediate`: our server deserializes its requests with `reader`.

    Other servers use the registered deserializer, so the function has to accept both forms of a request.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _READER, reader)
        return function

    return decorate


def reader_of(function: Callable[..., Any]) -> Callable[[bytes], Any] | None:
    """Return the deserializer of an undecorated `immediate` handler, or None for the registered one."""
    reader: Callable[[bytes], Any] | None = getattr(function, _READER, None)
    return reader


def plain(behaviour: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the undecorated function of an `immediate` handler, bound like it; None for other handlers."""
    function: Callable[..., Any] | None = getattr(behaviour, _PLAIN, None)
    owner = getattr(behaviour, "__self__", None)
    if function is None or owner is None:
        return function
    bound: Callable[..., Any] = function.__get__(owner)
    return bound

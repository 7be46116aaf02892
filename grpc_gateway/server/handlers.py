"""Running of handlers: as a task, or at once if the handler is taskless."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from grpc_gateway.server.methods import Method
from grpc_gateway.server.request_reader import deserialize
from grpc_gateway.server.rpc_status import RpcError
from grpc_gateway.server.server_call import ServerCall


def start_unary(call: ServerCall, message: bytes, flag: int = 0) -> None:
    """Run the handler of a unary request with its message; `flag` is the message's compressed flag."""
    method = call.method
    if flag:
        _start(call, _decompress_and_run(call, flag, message))
    elif method.taskless is not None:
        _run_taskless(call, method, message)
    else:
        _start(call, _run(call, message))


def start_streaming(call: ServerCall) -> None:
    """Run the handler of a streamed request."""
    _start(call, _run(call, None))


def _start(call: ServerCall, coroutine: Coroutine[Any, Any, None]) -> None:
    # The loop's create_task would format a name for each task.
    call.runner = asyncio.Task(coroutine, loop=call.connection.loop, name=call.path)


def _run(call: ServerCall, message: bytes | None) -> Coroutine[Any, Any, None]:
    """Return the coroutine that runs a handler; `message` is None for streamed requests."""
    method = call.method
    return (_respond_with_stream if method.response_streaming else _respond)(call, method, message)


async def _decompress_and_run(call: ServerCall, flag: int, message: bytes) -> None:
    """Run a handler with a compressed request; also a taskless handler, which is a coroutine function as well."""
    reader = call.reader()
    try:
        message = await reader.decompress(flag, message)
        if call.done():
            return
        reader.account(len(message))
    except (RpcError, asyncio.CancelledError) as error:
        call.fail(error)
        return
    running = _run(call, message)
    # Not to be kept in memory while the handler runs.
    message = b""
    await running


def _run_taskless(call: ServerCall, method: Method, message: bytes) -> None:
    """Respond when the handler returns, or when the future that it returns is done."""
    assert method.taskless is not None
    try:
        response = method.taskless(deserialize(method, message), call)
    except Exception as error:
        call.fail(error)
        return
    if not isinstance(response, asyncio.Future):
        call.respond(response)
    elif response.done():
        _respond_with_future(call, response)
    else:
        call.runner = response
        response.add_done_callback(partial(_respond_with_future, call))


def _respond_with_future(call: ServerCall, future: "asyncio.Future[Any]") -> None:
    if future.cancelled():
        call.fail(asyncio.CancelledError())
        return
    error = future.exception()
    if error is None:
        call.respond(future.result())
    else:
        call.fail(error)


async def _respond(call: ServerCall, method: Method, message: bytes | None) -> None:
    try:
        request = call.reader() if message is None else deserialize(method, message)
        # Not to be kept in memory while the handler runs.
        message = None
        response = await method.behaviour(request, call)
    except (Exception, asyncio.CancelledError) as error:
        call.fail(error)
    else:
        call.respond(response)


async def _respond_with_stream(call: ServerCall, method: Method, message: bytes | None) -> None:
    try:
        request = call.reader() if message is None else deserialize(method, message)
        message = None
        if method.generating:
            responses = method.behaviour(request, call)
            try:
                async for response in responses:
                    await call.write(response)
            finally:
                await responses.aclose()
        else:
            await method.behaviour(request, call)
    except (Exception, asyncio.CancelledError) as error:
        call.fail(error)
    else:
        call.finish(call.code(), call.details())

"""Running of handlers: as a task, or at once if the handler is taskless."""

import asyncio
from functools import partial
from typing import Any

from grpc_gateway.server.handler_tasks import decompress_and_run, run, start
from grpc_gateway.server.methods import Method
from grpc_gateway.server.request_reader import deserialize
from grpc_gateway.server.server_call import ServerCall
from remoting.taskless import Running


def start_unary(call: ServerCall, message: bytes, flag: int = 0) -> None:
    """Run the handler of a unary request with its message; `flag` is the message's compressed flag."""
    method = call.method
    if flag:
        start(call, decompress_and_run(call, flag, message))
    elif method.taskless is not None:
        _run_taskless(call, method, message)
    else:
        start(call, run(call, message))


def start_streaming(call: ServerCall) -> None:
    """Run the handler of a streamed request."""
    start(call, run(call, None))


def _run_taskless(call: ServerCall, method: Method, message: bytes) -> None:
    """Respond when the handler returns, or when the future or coroutine that it returns is done."""
    assert method.taskless is not None
    try:
        response = method.taskless(deserialize(method, message), call)
    except Exception as error:
        call.fail(error)
        return
    if isinstance(response, Running):
        # Its outcome is ignored if the call ends before.
        response.receiver = call
        call.running = response
    elif not isinstance(response, asyncio.Future):
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

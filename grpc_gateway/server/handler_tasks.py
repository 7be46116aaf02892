"""Handlers that run as tasks.

Not compiled: in compiled coroutines, `async for` and an await within `finally` leave a caught exception as the one that
is being handled.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from grpc_gateway.server.methods import Method
from grpc_gateway.server.request_reader import deserialize
from grpc_gateway.server.rpc_status import RpcError
from grpc_gateway.server.server_call import ServerCall


def start(call: ServerCall, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as the task of a call."""
    # The loop's create_task would format a name for each task.
    call.runner = asyncio.Task(coroutine, loop=call.connection.loop, name=call.path)


def run(call: ServerCall, message: bytes | None) -> Coroutine[Any, Any, None]:
    """Return the coroutine that runs a handler; `message` is None for streamed requests."""
    method = call.method
    return (_respond_with_stream if method.response_streaming else _respond)(call, method, message)


async def decompress_and_run(call: ServerCall, flag: int, message: bytes) -> None:
    """Run a handler with a compressed request; also a taskless handler, which is a coroutine function as well."""
    reader = call.reader()
    try:
        message = await reader.decompress(flag, message)
        if call.done():
            return
        reader.account_parsed(len(message))
    except (RpcError, asyncio.CancelledError) as error:
        call.fail(error)
        return
    running = run(call, message)
    # Not to be kept in memory while the handler runs.
    message = b""
    await running


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

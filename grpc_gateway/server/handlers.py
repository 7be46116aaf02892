"""How handlers are run: four arities, each as a coroutine or as a plain function in a thread."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from grpc_gateway.server.call import Call
from grpc_gateway.server.methods import Method
from grpc_gateway.server.status import RpcError
from grpc_gateway.server.sync_context import SyncContext, SyncRequests

_END = object()


def begin(call: Call, message: bytes | None, flag: int = 0) -> None:
    """Run the call's handler; `message` with its flag is the request of a unary one, None for streamed requests."""
    method = call.method
    if flag and message is not None:
        start(call, _inflated(call, flag, message))
    elif method.immediate is not None and message is not None:
        run_immediate(call, method, message)
    else:
        start(call, _run(call, message))


def _run(call: Call, message: bytes | None) -> Coroutine[Any, Any, None]:
    method = call.method
    runners = _ASYNCHRONOUS if method.asynchronous else _IN_THREADS
    return runners[method.response_streaming](call, method, message)


async def _inflated(call: Call, flag: int, message: bytes) -> None:
    """A compressed request; also an immediate handler's, which is a coroutine function to all others."""
    try:
        message = await call.unpack(flag, message)
        if call.done():
            return
        call.hold(len(message))
    except (RpcError, asyncio.CancelledError) as error:
        call.fail(error)
        return
    running = _run(call, message)
    # It is the handler's alone.
    del message
    await running


def start(call: Call, coroutine: Coroutine[Any, Any, None]) -> None:
    # Not by the loop's create_task, which would make up a name for every call.
    call.runner = asyncio.Task(coroutine, loop=call.connection.loop, name=call.path)


def run_immediate(call: Call, method: Method, message: bytes) -> None:
    """No task: the answer is there when the function returns, or when its future is done."""
    assert method.immediate is not None
    try:
        response = method.immediate(call.deserialize(message), call)
    except Exception as error:
        call.fail(error)
        return
    if not isinstance(response, asyncio.Future):
        call.respond(response)
    elif response.done():
        _take(call, response)
    else:
        call.runner = response
        response.add_done_callback(partial(_take, call))


def _take(call: Call, future: "asyncio.Future[Any]") -> None:
    if future.cancelled():
        call.fail(asyncio.CancelledError())
        return
    error = future.exception()
    if error is None:
        call.respond(future.result())
    else:
        call.fail(error)


async def _unary(call: Call, method: Method, message: bytes | None) -> None:
    try:
        request = call.requests() if message is None else call.deserialize(message)
        # What it was made of is not needed while the handler runs.
        del message
        response = await method.behaviour(request, call)
    except (Exception, asyncio.CancelledError) as error:
        call.fail(error)
    else:
        call.respond(response)


async def _streaming(call: Call, method: Method, message: bytes | None) -> None:
    try:
        request = call.requests() if message is None else call.deserialize(message)
        del message
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
        _end(call)


async def _unary_in_thread(call: Call, method: Method, message: bytes | None) -> None:
    try:
        response = await _in_thread(call, method.behaviour, _sync_request(call, message), SyncContext(call))
    except (Exception, asyncio.CancelledError) as error:
        call.fail(error)
    else:
        call.respond(response)


async def _streaming_in_thread(call: Call, method: Method, message: bytes | None) -> None:
    try:
        responses = await _in_thread(call, method.behaviour, _sync_request(call, message), SyncContext(call))
        iterator = iter(responses)
        while (response := await _in_thread(call, next, iterator, _END)) is not _END:
            await call.write(response)
    except (Exception, asyncio.CancelledError) as error:
        call.fail(error)
    else:
        _end(call)


def _sync_request(call: Call, message: bytes | None) -> Any:
    return SyncRequests(call) if message is None else call.deserialize(message)


async def _in_thread(call: Call, function: Any, *arguments: Any) -> Any:
    connection = call.connection
    return await connection.loop.run_in_executor(connection.server.threads, function, *arguments)


def _end(call: Call) -> None:
    """The handler of a streamed answer has returned."""
    call.finish(call.code(), call.details())


# By whether the answer is streamed.
_ASYNCHRONOUS = (_unary, _streaming)
_IN_THREADS = (_unary_in_thread, _streaming_in_thread)

"""Handlers of all kinds, called by grpcio's client."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from grpc_gateway.server import immediate
from tests.grpc_gateway.server.servers import (
    STREAM,
    STREAM_UNARY,
    UNARY,
    UNARY_STREAM,
    path,
    serving,
    status_of,
)

pytestmark = pytest.mark.anyio


async def echo(request: bytes, _: Any) -> bytes:
    return request


def echo_sync(request: bytes, _: Any) -> bytes:
    return request


async def count(request: bytes, _: Any) -> AsyncIterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


async def count_by_writing(request: bytes, context: Any) -> None:
    for number in range(int(request)):
        await context.write(b"%d" % number)


async def join(requests: AsyncIterator[bytes], _: Any) -> bytes:
    return b",".join([request async for request in requests])


async def join_by_reading(_: Any, context: Any) -> bytes:
    parts = []
    while (part := await context.read()) is not grpc.aio.EOF:
        parts.append(part)
    return b",".join(parts)


async def chat(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.upper()


class ImmediateHandlers:
    @immediate
    def now(self, request: bytes, _: Any) -> bytes:
        return request

    @immediate
    def soon(self, request: bytes, context: Any) -> "asyncio.Future[bytes]":
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, future.set_result, request)
        return future


@pytest.mark.parametrize("behaviour", [echo, echo_sync, ImmediateHandlers().now, ImmediateHandlers().soon])
async def test_unary_calls_of_any_size(behaviour: Any) -> None:
    async with serving({"Echo": UNARY(behaviour)}) as (server, channel):
        call = channel.unary_unary(path("Echo"))
        for message in (b"", b"a", b"x" * 300, b"y" * 3_000_000):
            assert await call(message) == message
        assert server.calls() == {(path("Echo"), grpc.StatusCode.OK): 4}


@pytest.mark.parametrize("behaviour", [count, count_by_writing])
async def test_each_message_of_a_streamed_response_arrives(behaviour: Any) -> None:
    async with serving({"Count": UNARY_STREAM(behaviour)}) as (_, channel):
        assert [message async for message in channel.unary_stream(path("Count"))(b"5")] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert [message async for message in channel.unary_stream(path("Count"))(b"0")] == []


async def test_a_plain_function_that_returns_a_stream_fails() -> None:
    def return_iterator(request: bytes, _: Any) -> Any:
        return iter([request])

    async with serving({"Stream": UNARY_STREAM(return_iterator)}) as (_, channel):
        assert await status_of(channel.unary_stream(path("Stream"))(b"")) == (grpc.StatusCode.UNKNOWN, "internal error")


@pytest.mark.parametrize("behaviour", [join, join_by_reading])
async def test_a_streamed_request_is_read_up_to_its_end(behaviour: Any) -> None:
    async with serving({"Join": STREAM_UNARY(behaviour)}) as (_, channel):
        assert (
            await channel.stream_unary(path("Join"))(iter([b"a", b"", b"c" * 2_000_000])) == b"a,," + b"c" * 2_000_000
        )
        assert await channel.stream_unary(path("Join"))(iter([])) == b""


async def test_a_bidirectional_stream_answers_each_message_before_the_next() -> None:
    async with serving({"Chat": STREAM(chat)}) as (_, channel):
        call = channel.stream_stream(path("Chat"))()
        for message in (b"one", b"two"):
            await call.write(message)
            assert await call.read() == message.upper()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_concurrent_calls_get_their_own_responses() -> None:
    async with serving({"Echo": UNARY(echo)}) as (_, channel):
        call = channel.unary_unary(path("Echo"))
        messages = [b"%d" % number * 1000 for number in range(500)]
        assert await asyncio.gather(*map(call, messages)) == messages


@pytest.mark.parametrize("behaviour", [ImmediateHandlers().now, immediate(lambda request, _: request)])
async def test_an_immediate_handler_is_a_coroutine_function(behaviour: Any) -> None:
    """grpcio's server runs only coroutine functions in its event loop."""
    assert inspect.iscoroutinefunction(behaviour)
    assert await behaviour(b"a", None) == b"a"

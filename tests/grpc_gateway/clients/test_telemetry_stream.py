import asyncio
from typing import Any

import pytest

from grpc_gateway.clients.telemetry_stream import TelemetryStream
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import PrintThreadStackTraceCommand, TelemetryCommand, ThreadStackTrace
from remoting.errors import ConsumerNotOnline, Overloaded, RequestTimeout
from remoting.tasks import spawn
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

COMMAND = TelemetryCommand()


def stack_trace(nonce: str) -> TelemetryCommand:
    return TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce))


def stack_trace_reply(nonce: str) -> TelemetryCommand:
    return TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce))


async def next_nonce(stream: TelemetryStream) -> str:
    command = await stream.next()
    assert command is not None
    return command.print_thread_stack_trace_command.nonce


async def test_commands_are_read_in_order_until_the_end() -> None:
    stream = TelemetryStream()
    waiting = spawn(stream.next())
    await settle()
    first, second = stack_trace("1"), stack_trace("2")
    assert stream.write(first)
    assert stream.write(second)
    stream.end()
    assert not stream.write(COMMAND)
    assert await waiting is first
    assert await stream.next() is second
    assert await stream.next() is None


async def test_reply_completes_the_request_with_its_nonce() -> None:
    stream = TelemetryStream()
    first_reply, second_reply = stream.request(stack_trace, 5), stream.request(stack_trace, 5)
    first, second = await next_nonce(stream), await next_nonce(stream)
    assert first != second
    stream.receive_reply(second, stack_trace_reply(second))
    stream.receive_reply("no such nonce", stack_trace_reply(""))
    assert (await second_reply).thread_stack_trace.nonce == second
    assert not first_reply.done()
    stream.receive_reply(first, stack_trace_reply(first))
    stream.receive_reply(first, stack_trace_reply("again"))
    assert (await first_reply).thread_stack_trace.nonce == first


async def test_reply_on_another_stream_is_ignored() -> None:
    stream, other_stream = TelemetryStream(), TelemetryStream()
    reply = stream.request(stack_trace, 5)
    nonce = await next_nonce(stream)
    other_stream.receive_reply(nonce, stack_trace_reply(nonce))
    assert not reply.done()
    stream.end()
    await assert_fails(reply, ConsumerNotOnline)


async def assert_fails(reply: "asyncio.Future[Any]", kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await reply


async def test_end_fails_open_and_later_requests() -> None:
    stream = TelemetryStream()
    reply = stream.request(stack_trace, 5)
    waiting = spawn(stream.next())
    await settle()
    await waiting
    stream.end()
    stream.end()
    await assert_fails(reply, ConsumerNotOnline)
    await assert_fails(stream.request(stack_trace, 5), ConsumerNotOnline)


async def test_request_times_out_and_a_late_reply_is_ignored() -> None:
    stream = TelemetryStream()
    reply = stream.request(stack_trace, 0.01)
    nonce = await next_nonce(stream)
    await assert_fails(reply, RequestTimeout)
    stream.receive_reply(nonce, stack_trace_reply(nonce))


async def test_cancelled_request_is_removed() -> None:
    stream = TelemetryStream()
    stream.request(stack_trace, 5).cancel()
    await settle()
    assert not stream._replies
    stream.end()


async def test_full_queue_ends_the_stream() -> None:
    stream = TelemetryStream()
    reply = stream.request(stack_trace, 5)
    written = 0
    while stream.write(COMMAND):
        written += 1
    assert written < 2_000
    await assert_fails(reply, ConsumerNotOnline)
    assert await stream.next() is None
    assert stream.failure is not None
    assert stream.failure[0] == Code.TOO_MANY_REQUESTS


async def test_queued_bytes_are_bounded() -> None:
    stream = TelemetryStream()
    large = stack_trace("x" * 4 * 2**20)
    written = 0
    while stream.write(large):
        written += 1
        assert stream.queued_bytes == written * large.ByteSize()
    assert written == 3
    assert stream.queued_bytes == 0
    assert stream.failure == (
        Code.TOO_MANY_REQUESTS,
        f"the client has not read 3 telemetry commands of {3 * large.ByteSize()} bytes",
    )


async def test_read_commands_make_room() -> None:
    stream = TelemetryStream()
    larger_than_all = stack_trace("x" * 17 * 2**20)
    for _ in range(3):
        assert stream.write(larger_than_all), "one command is always queued"
        assert await stream.next() is larger_than_all
    assert stream.queued_bytes == 0


async def test_requests_without_a_reply_are_limited() -> None:
    stream = TelemetryStream()
    replies = []
    for _ in range(1_024):
        replies.append(stream.request(stack_trace, 5))
        await stream.next()
    await assert_fails(stream.request(stack_trace, 5), Overloaded)
    stream.end()
    for reply in replies:
        await assert_fails(reply, ConsumerNotOnline)

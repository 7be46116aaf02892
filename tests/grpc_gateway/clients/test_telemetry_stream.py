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


def answer(nonce: str) -> TelemetryCommand:
    return TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce))


async def asked(stream: TelemetryStream) -> str:
    command = await stream.next()
    assert command is not None
    return command.print_thread_stack_trace_command.nonce


async def test_what_is_written_is_told_in_order_then_comes_the_end() -> None:
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


async def test_an_answer_reaches_who_asked() -> None:
    stream = TelemetryStream()
    one, other = stream.request(stack_trace, 5), stream.request(stack_trace, 5)
    first, second = await asked(stream), await asked(stream)
    assert first != second
    stream.receive_reply(second, answer(second))
    stream.receive_reply("no such nonce", answer(""))
    assert (await other).thread_stack_trace.nonce == second
    assert not one.done()
    stream.receive_reply(first, answer(first))
    stream.receive_reply(first, answer("again"))
    assert (await one).thread_stack_trace.nonce == first


async def test_nobody_replies_for_another() -> None:
    stream, other = TelemetryStream(), TelemetryStream()
    question = stream.request(stack_trace, 5)
    nonce = await asked(stream)
    other.receive_reply(nonce, answer(nonce))
    assert not question.done()
    stream.end()
    await failed(question, ConsumerNotOnline)


async def failed(question: "asyncio.Future[Any]", kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await question


async def test_the_end_is_noticed_at_once() -> None:
    stream = TelemetryStream()
    question = stream.request(stack_trace, 5)
    waiting = spawn(stream.next())
    await settle()
    await waiting
    stream.end()
    stream.end()
    await failed(question, ConsumerNotOnline)
    await failed(stream.request(stack_trace, 5), ConsumerNotOnline)


async def test_silence_has_an_end_and_a_late_answer_harms_nobody() -> None:
    stream = TelemetryStream()
    question = stream.request(stack_trace, 0.01)
    nonce = await asked(stream)
    await failed(question, RequestTimeout)
    stream.receive_reply(nonce, answer(nonce))


async def test_who_gives_up_asking_leaves_nothing_behind() -> None:
    stream = TelemetryStream()
    stream.request(stack_trace, 5).cancel()
    await settle()
    assert not stream._replies
    stream.end()


async def test_a_client_that_does_not_read_is_let_go() -> None:
    stream = TelemetryStream()
    question = stream.request(stack_trace, 5)
    written = 0
    while stream.write(COMMAND):
        written += 1
    assert written < 2_000
    await failed(question, ConsumerNotOnline)
    assert await stream.next() is None
    assert stream.failure is not None
    assert stream.failure[0] == Code.TOO_MANY_REQUESTS


async def test_a_client_that_reads_but_never_replies_is_not_asked_for_ever() -> None:
    stream = TelemetryStream()
    questions = []
    for _ in range(1_024):
        questions.append(stream.request(stack_trace, 5))
        await stream.next()
    await failed(stream.request(stack_trace, 5), Overloaded)
    stream.end()
    for question in questions:
        await failed(question, ConsumerNotOnline)

"""Deadlines, cancellation and lost connections."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from grpc_gateway.http2 import CloseCause
from grpc_gateway.server import ServerCall, immediate
from remoting import command as commands
from remoting.delayed_reply import DelayedReply
from remoting.taskless import start
from tests.grpc_gateway.server.servers import (
    STREAM,
    UNARY,
    path,
    serving,
    status_of,
)
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["task", "future"])
async def test_a_deadline_cancels_the_handler(kind: str) -> None:
    contexts: list[ServerCall] = []
    ended: list[str] = []

    async def wait(_: bytes, context: Any) -> bytes:
        contexts.append(context)
        assert 0 < context.time_remaining() < 1.1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b""

    def wait_in_future(_: bytes, context: Any) -> Any:
        contexts.append(context)
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: ended.append("cancelled" if done.cancelled() else ""))
        return future

    behaviour = wait if kind == "task" else immediate(wait_in_future)
    async with serving({"Wait": UNARY(behaviour)}) as (server, channel):
        # Connecting could take longer than the deadline.
        await channel.channel_ready()
        code, _ = await status_of(channel.unary_unary(path("Wait"))(b"", timeout=1.0))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: ended)
        assert ended == ["cancelled"]
        assert contexts[0].done()
        assert contexts[0].cancelled()
        # The client's cancellation may arrive before the server's deadline.
        [(method, ended_with)] = server.calls()
        assert method == path("Wait")
        assert ended_with in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


async def test_time_remaining_without_a_deadline_is_none() -> None:
    async def remaining(_: bytes, context: Any) -> bytes:
        return repr(context.time_remaining()).encode()

    async with serving({"Remaining": UNARY(remaining)}) as (_, channel):
        assert await channel.unary_unary(path("Remaining"))(b"") == b"None"


@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_a_cancelled_call_cancels_its_handler(kind: str) -> None:
    began = asyncio.Event()
    notified: list[Any] = []

    async def wait(_: Any, context: Any) -> bytes:
        context.add_done_callback(notified.append)
        began.set()
        await asyncio.sleep(60)
        return b""

    async def wait_stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
        context.add_done_callback(notified.append)
        began.set()
        async for _ in requests:
            yield b""

    async with serving({"Wait": UNARY(wait) if kind == "unary" else STREAM(wait_stream)}) as (server, channel):
        call = channel.unary_unary(path("Wait"))(b"") if kind == "unary" else channel.stream_stream(path("Wait"))()
        await began.wait()
        call.cancel()
        await until(lambda: notified)
        assert notified[0].cancelled()
        await until(lambda: server.open_streams == 0)
        connection = next(iter(server.connections))
        await until(lambda: not connection.open_calls.cancelled_handlers)
        assert not connection.open_calls.calls
        assert server.calls() == {(path("Wait"), grpc.StatusCode.CANCELLED): 1}


async def test_a_lost_connection_cancels_its_handlers() -> None:
    began = asyncio.Event()
    closed: list[Any] = []
    ended: list[bool] = []

    async def wait(_: Any, context: Any) -> bytes:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(context.cancelled())
        return b""

    async with serving({"Wait": UNARY(wait)}, on_close=closed.append) as (server, channel):
        call = channel.unary_unary(path("Wait"))(b"")
        await began.wait()
        next(iter(server.connections)).abort(CloseCause.LOCAL)
        assert (await status_of(call))[0] is grpc.StatusCode.UNAVAILABLE
        await until(lambda: ended)
        assert ended == [True]
        assert len(closed) == 1


@pytest.mark.parametrize("sent", [False, True])
async def test_a_deadline_ends_a_coroutine_that_has_had_no_effect(sent: bool) -> None:
    """It counts as a call of its connection until it ends."""
    replies: list[DelayedReply] = []
    ended: list[str] = []

    @immediate
    def handler(_: bytes, __: Any) -> Any:
        async def work() -> bytes:
            reply = DelayedReply()
            reply.sent_at = 1.0 if sent else None
            replies.append(reply)
            try:
                await reply
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            ended.append("answered")
            return b""

        return start(work())

    async with serving({"Send": UNARY(handler)}) as (server, channel):
        call = channel.unary_unary(path("Send"))(b"", timeout=0.3)
        assert (await status_of(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        open_calls = next(iter(server.connections)).open_calls
        if sent:
            await until(lambda: open_calls.late)
            assert (len(open_calls), ended) == (1, [])
            replies[0].set_result(commands.success())
        await until(lambda: ended)
        assert ended == ["answered" if sent else "cancelled"]
        await until(lambda: len(open_calls) == 0)

"""Calls of grpcio's client on our server."""

import asyncio
import gzip
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from grpc_gateway.http2 import CloseCause
from grpc_gateway.server import Call, RpcError, ServerOptions, immediate
from tests.grpc_gateway.server.kit import (
    STREAM,
    STREAM_UNARY,
    UNARY,
    UNARY_STREAM,
    path,
    serving,
    status_of,
    until,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


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


def count_sync(request: bytes, _: Any) -> Iterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


async def join(requests: AsyncIterator[bytes], _: Any) -> bytes:
    return b",".join([request async for request in requests])


async def join_by_reading(_: Any, context: Any) -> bytes:
    parts = []
    while (part := await context.read()) is not grpc.aio.EOF:
        parts.append(part)
    return b",".join(parts)


def join_sync(requests: Iterator[bytes], _: Any) -> bytes:
    return b",".join(requests)


async def chat(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.upper()


def chat_sync(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
    for request in requests:
        yield request.upper()


class Service:
    @immediate
    def now(self, request: bytes, _: Any) -> bytes:
        return request

    @immediate
    def soon(self, request: bytes, context: Any) -> "asyncio.Future[bytes]":
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, future.set_result, request)
        return future

    @immediate
    def refused(self, request: bytes, context: Any) -> bytes:
        raise RpcError(grpc.StatusCode.NOT_FOUND, "nothing", [("why", "gone")])

    @immediate
    def broken(self, request: bytes, context: Any) -> bytes:
        raise KeyError("secret")


@pytest.mark.parametrize("behaviour", [echo, echo_sync, Service().now, Service().soon])
async def test_unary(behaviour: Any) -> None:
    async with serving({"Echo": UNARY(behaviour)}) as (server, channel):
        call = channel.unary_unary(path("Echo"))
        for message in (b"", b"a", b"x" * 300, b"y" * 3_000_000):
            assert await call(message) == message
        assert server.calls() == {(path("Echo"), grpc.StatusCode.OK): 4}


@pytest.mark.parametrize("behaviour", [count, count_by_writing, count_sync])
async def test_streamed_answer(behaviour: Any) -> None:
    async with serving({"Count": UNARY_STREAM(behaviour)}) as (_, channel):
        assert [message async for message in channel.unary_stream(path("Count"))(b"5")] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert [message async for message in channel.unary_stream(path("Count"))(b"0")] == []


@pytest.mark.parametrize("behaviour", [join, join_by_reading, join_sync])
async def test_streamed_request(behaviour: Any) -> None:
    async with serving({"Join": STREAM_UNARY(behaviour)}) as (_, channel):
        assert (
            await channel.stream_unary(path("Join"))(iter([b"a", b"", b"c" * 2_000_000])) == b"a,," + b"c" * 2_000_000
        )
        assert await channel.stream_unary(path("Join"))(iter([])) == b""


@pytest.mark.parametrize("behaviour", [chat, chat_sync])
async def test_both_streamed(behaviour: Any) -> None:
    async with serving({"Chat": STREAM(behaviour)}) as (_, channel):
        call = channel.stream_stream(path("Chat"))()
        for message in (b"one", b"two"):
            await call.write(message)
            assert await call.read() == message.upper()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_many_at_once() -> None:
    async with serving({"Echo": UNARY(echo)}) as (_, channel):
        call = channel.unary_unary(path("Echo"))
        messages = [b"%d" % number * 1000 for number in range(500)]
        assert await asyncio.gather(*map(call, messages)) == messages


# How calls end.


async def abort(_: bytes, context: Any) -> bytes:
    await context.abort(
        grpc.StatusCode.FAILED_PRECONDITION, "not so: 100 % \u00fcber\n", (("a", "b"), ("c-bin", b"\0\xff"))
    )
    raise AssertionError


def abort_sync(_: bytes, context: Any) -> bytes:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not so: 100 % \u00fcber\n", (("a", "b"), ("c-bin", b"\0\xff")))
    raise AssertionError


async def raise_rpc_error(_: bytes, __: Any) -> bytes:
    raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, "not so: 100 % \u00fcber\n", (("a", "b"), ("c-bin", b"\0\xff")))


@pytest.mark.parametrize("behaviour", [abort, abort_sync, raise_rpc_error])
async def test_abort(behaviour: Any) -> None:
    async with serving({"Abort": UNARY(behaviour)}) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(path("Abort"))(b"")
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert raised.value.details() == "not so: 100 % \u00fcber\n"
        assert tuple(raised.value.trailing_metadata()) == (("a", "b"), ("c-bin", b"\0\xff"))


@pytest.mark.parametrize("number", range(1, 17))
async def test_every_code_can_be_set(number: int) -> None:
    code = next(code for code in grpc.StatusCode if code.value[0] == number)

    async def fail(_: bytes, context: Any) -> bytes:
        context.set_code(code)
        context.set_details("as set")
        return b"dropped"

    async with serving({"Fail": UNARY(fail)}) as (server, channel):
        assert await status_of(channel.unary_unary(path("Fail"))(b"")) == (code, "as set")
        assert server.calls() == {(path("Fail"), code): 1}


@pytest.mark.parametrize("kind", ["async", "sync", "immediate", "stream"])
async def test_an_exception_is_unknown_and_says_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: bytes, __: Any) -> bytes:
        raise KeyError("secret")

    def fail_sync(_: bytes, __: Any) -> bytes:
        raise KeyError("secret")

    async def fail_stream(_: bytes, __: Any) -> AsyncIterator[bytes]:
        yield b"one"
        raise KeyError("secret")

    handler = {
        "async": UNARY(fail),
        "sync": UNARY(fail_sync),
        "immediate": UNARY(Service().broken),
        "stream": UNARY_STREAM(fail_stream),
    }[kind]
    async with serving({"Fail": handler}) as (_, channel):
        call = (channel.unary_stream if kind == "stream" else channel.unary_unary)(path("Fail"))
        assert await status_of(call(b"")) == (grpc.StatusCode.UNKNOWN, "internal error")
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_immediate_errors() -> None:
    async with serving({"Refused": UNARY(Service().refused)}) as (_, channel):
        assert await status_of(channel.unary_unary(path("Refused"))(b"")) == (grpc.StatusCode.NOT_FOUND, "nothing")


async def test_unknown_method() -> None:
    async with serving({}) as (server, channel):
        for name in ("Nothing", "Else"):
            status = await status_of(channel.unary_unary(path(name))(b""))
            assert status == (grpc.StatusCode.UNIMPLEMENTED, f"unknown method {path(name)}")
        assert server.calls() == {("unknown", grpc.StatusCode.UNIMPLEMENTED): 2}


async def test_serializers_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> Any:
        raise ValueError("secret")

    handlers = {
        "In": grpc.unary_unary_rpc_method_handler(echo, request_deserializer=fail),
        "Out": grpc.unary_unary_rpc_method_handler(echo, response_serializer=fail),
    }
    async with serving(handlers) as (_, channel):
        for name in handlers:
            code, details = await status_of(channel.unary_unary(path(name))(b""))
            assert code is grpc.StatusCode.INTERNAL
            assert "secret" not in details


async def test_a_response_of_the_wrong_type(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(_: bytes, __: Any) -> None:
        return None

    async with serving({"Nothing": UNARY(nothing)}) as (_, channel):
        assert (await status_of(channel.unary_unary(path("Nothing"))(b"")))[0] is grpc.StatusCode.INTERNAL


# Deadlines and cancellation.


@pytest.mark.parametrize("kind", ["task", "future"])
async def test_deadline(kind: str) -> None:
    contexts: list[Call] = []
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
        # Once there is a connection, or its making might take all the time.
        await channel.channel_ready()
        code, _ = await status_of(channel.unary_unary(path("Wait"))(b"", timeout=1.0))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: ended)
        assert ended == ["cancelled"]
        assert contexts[0].done()
        assert contexts[0].cancelled()
        # Whoever noticed first, the client or we.
        assert server.stats.expired + server.stats.cancelled == 1


async def test_no_deadline() -> None:
    async def remaining(_: bytes, context: Any) -> bytes:
        return repr(context.time_remaining()).encode()

    async with serving({"Remaining": UNARY(remaining)}) as (_, channel):
        assert await channel.unary_unary(path("Remaining"))(b"") == b"None"


@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_the_client_cancels(kind: str) -> None:
    began = asyncio.Event()
    told: list[Any] = []

    async def wait(_: Any, context: Any) -> bytes:
        context.add_done_callback(told.append)
        began.set()
        await asyncio.sleep(60)
        return b""

    async def wait_stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
        context.add_done_callback(told.append)
        began.set()
        async for _ in requests:
            yield b""

    async with serving({"Wait": UNARY(wait) if kind == "unary" else STREAM(wait_stream)}) as (server, channel):
        call = channel.unary_unary(path("Wait"))(b"") if kind == "unary" else channel.stream_stream(path("Wait"))()
        await began.wait()
        call.cancel()
        await until(lambda: told)
        assert told[0].cancelled()
        await until(lambda: server.open_streams == 0)
        connection = next(iter(server.connections))
        await until(lambda: not connection.lingering)
        assert not connection.calls
        assert server.stats.cancelled == 1


async def test_the_connection_is_lost() -> None:
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


# Metadata.


async def test_metadata() -> None:
    seen: list[Any] = []

    async def metadata(request: bytes, context: Any) -> bytes:
        seen.append(context.invocation_metadata())
        await context.send_initial_metadata((("first", "1"), ("raw-bin", b"\x00\x01\xfe")))
        context.set_trailing_metadata((("last", "2"), ("raw-bin", b"")))
        return request

    async with serving({"Metadata": UNARY(metadata)}) as (_, channel):
        call = channel.unary_unary(path("Metadata"))(
            b"", metadata=(("key", "value"), ("key", "again"), ("a-bin", b"\xff\x00,"), ("b-bin", b"x"))
        )
        await call
        assert [pair for pair in await call.initial_metadata() if pair[0] in ("first", "raw-bin")] == [
            ("first", "1"),
            ("raw-bin", b"\x00\x01\xfe"),
        ]
        assert tuple(await call.trailing_metadata()) == (("last", "2"), ("raw-bin", b""))
    pairs = [(datum.key, datum.value) for datum in seen[0] if datum.key != "user-agent"]
    assert pairs == [("key", "value"), ("key", "again"), ("a-bin", b"\xff\x00,"), ("b-bin", b"x")]


@pytest.mark.parametrize("bad", [("Upper", "x"), ("grpc-status", "0"), (":path", "/"), ("a", "line\nfeed"), ("", "x")])
async def test_metadata_that_is_not_allowed(bad: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async def metadata(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((bad,))
        return b""

    async with serving({"Metadata": UNARY(metadata)}) as (_, channel):
        assert (await status_of(channel.unary_unary(path("Metadata"))(b"")))[0] is grpc.StatusCode.UNKNOWN


async def test_who_calls() -> None:
    contexts: list[Call] = []

    async def who(_: bytes, context: Any) -> bytes:
        contexts.append(context)
        return str(context.peer()).encode()

    async with serving({"Who": UNARY(who)}) as (server, channel):
        peer = (await channel.unary_unary(path("Who"))(b"")).decode()
        await channel.unary_unary(path("Who"))(b"")
        assert peer.startswith("ipv4:127.0.0.1:")
        assert peer == f"ipv4:{contexts[0].peer_info.address}"
        assert contexts[0].connection is contexts[1].connection
        assert server.connections == {contexts[0].connection}
        assert contexts[0].auth_context() == {}
        assert contexts[0].peer_identities() is None


# Compression and sizes.


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compression(algorithm: grpc.Compression) -> None:
    async def compressed(request: bytes, context: Any) -> bytes:
        context.set_compression(algorithm)
        return request

    async with serving({"Echo": UNARY(compressed)}, compression=algorithm) as (_, channel):
        assert await channel.unary_unary(path("Echo"))(b"x" * 100_000) == b"x" * 100_000


async def test_compression_of_streams() -> None:
    async def numbers(_: bytes, context: Any) -> AsyncIterator[bytes]:
        context.disable_next_message_compression()
        for number in range(10):
            yield b"%d" % number * 1000

    options = ServerOptions(compression=grpc.Compression.Gzip)
    async with serving({"Count": UNARY_STREAM(numbers)}, options) as (_, channel):
        messages = [message async for message in channel.unary_stream(path("Count"))(b"")]
        assert messages == [b"%d" % number * 1000 for number in range(10)]


async def test_a_bomb_is_not_inflated() -> None:
    options = ServerOptions(max_receive_message=1_000_000)
    async with serving({"Echo": UNARY(echo)}, options, compression=grpc.Compression.Gzip) as (_, channel):
        assert len(gzip.compress(b"x" * 5_000_000)) < 10_000
        code, details = await status_of(channel.unary_unary(path("Echo"))(b"x" * 5_000_000))
        assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "a message is larger than 1000000 bytes")


@pytest.mark.parametrize("handler", [UNARY(echo), STREAM_UNARY(join)])
async def test_messages_that_are_too_large(handler: Any) -> None:
    options = ServerOptions(max_receive_message=1000, max_send_message=900)
    async with serving({"Echo": handler}, options) as (_, channel):
        if handler.request_streaming:
            stream = channel.stream_unary(path("Echo"))
            call: Any = lambda message: stream(iter([message]))  # noqa: E731
        else:
            call = channel.unary_unary(path("Echo"))
        assert await call(b"x" * 900) == b"x" * 900
        assert (await status_of(call(b"x" * 1001)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await status_of(call(b"x" * 901)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


# Flow control.


async def test_a_slow_reader_makes_the_writer_wait() -> None:
    written = 0

    async def pour(_: bytes, context: Any) -> None:
        nonlocal written
        for _number in range(200):
            await context.write(b"x" * 100_000)
            written += 1

    # Else the client's window grows with what it measures.
    client_options = (("grpc.http2.bdp_probe", 0),)
    async with serving({"Pour": UNARY_STREAM(pour)}, client_options=client_options) as (server, channel):
        call = channel.unary_stream(path("Pour"))(b"")
        assert len(await call.read()) == 100_000
        seen = 0
        async with asyncio.timeout(30):
            while written != seen:
                seen = written
                await asyncio.sleep(0.3)
        assert seen < 150
        count = 1
        while await call.read() is not grpc.aio.EOF:
            count += 1
        assert (count, written) == (200, 200)
        assert next(iter(server.connections)).http2.waiting == 0


async def test_a_slow_handler_makes_the_client_wait() -> None:
    go_on = asyncio.Event()
    sent = 0

    async def swallow(requests: AsyncIterator[bytes], _: Any) -> bytes:
        await go_on.wait()
        return b"%d" % sum([len(request) async for request in requests])

    async with serving({"Swallow": STREAM_UNARY(swallow)}) as (_, channel):
        call = channel.stream_unary(path("Swallow"))()

        async def send() -> None:
            nonlocal sent
            for _ in range(100):
                await call.write(b"x" * 100_000)
                sent += 1
            await call.done_writing()

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.3)
        assert sent < 50
        go_on.set()
        await sending
        assert await call == b"10000000"


@pytest.mark.parametrize("behaviour", [Service().now, immediate(lambda request, _: request)])
async def test_an_immediate_handler_is_a_coroutine_function_to_all_others(behaviour: Any) -> None:
    """grpcio's server runs nothing else on its loop."""
    assert inspect.iscoroutinefunction(behaviour)
    assert await behaviour(b"a", None) == b"a"

"""Flow control and memory limits: clients that read too slowly or send too much."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from grpc_gateway.http2 import CloseCause, Limits, frames
from grpc_gateway.server import Server, ServerOptions
from grpc_gateway.server.compression import parts
from tests.grpc_gateway.http2.http2_client import END, data, settings
from tests.grpc_gateway.server.servers import (
    SERVICE,
    STREAM,
    STREAM_UNARY,
    UNARY,
    UNARY_STREAM,
    run_ready_callbacks,
)
from tests.grpc_gateway.server.wire_client import WireClient, message
from tests.waiting import until

pytestmark = pytest.mark.anyio

_WIDE = settings(initial_window_size=2**31 - 1) + frames.window_update(0, 2**31 - 1 - 65_535)
_KIB = 1024


async def hang(_: Any, __: Any) -> bytes:
    await asyncio.Event().wait()
    return b""


async def echo(request: bytes, _: Any) -> bytes:
    return request


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(ServerOptions(max_receive_message=100 * _KIB, max_request_bytes=300 * _KIB))
    server.add_registered_method_handlers(SERVICE, {"Hang": UNARY(hang), "Echo": UNARY(echo)})
    yield server
    for connection in tuple(server.connections):
        connection.connection_lost(None)
    await server.close()


@pytest.fixture
async def wire(server: Server) -> WireClient:
    return WireClient(server)


# Responses that the client does not read.


class EndlessWriter:
    """A handler that writes without end; counts the bytes written by stream."""

    def __init__(self, size: int) -> None:
        self.written: dict[int, int] = {}
        self._message = bytes(size)

    async def __call__(self, _: bytes, context: Any) -> None:
        number = context.stream.id
        while True:
            await context.write(self._message)
            self.written[number] = self.written.get(number, 0) + len(self._message)


async def test_a_writer_without_backpressure_yields_to_the_event_loop(server: Server, wire: WireClient) -> None:
    """With open windows and an empty socket, one stream takes neither all of the loop's time nor of the output."""
    writer = EndlessWriter(16 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(writer)})
    wire.send_bytes(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    for _ in range(5):
        await asyncio.sleep(0)
    assert writer.written[1] <= 1024 * _KIB
    assert max(map(len, wire.transport.written)) <= 256 * _KIB


async def test_a_writer_of_small_messages_yields_to_the_event_loop(server: Server, wire: WireClient) -> None:
    writer = EndlessWriter(1)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(writer)})
    wire.send_bytes(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    for _ in range(5):
        await asyncio.sleep(0)
    assert writer.written[1] <= 1000


async def test_writers_to_a_full_socket_take_turns(server: Server, wire: WireClient) -> None:
    """One writer resumes at a time, the longest waiting first, so that the limit holds for all together."""
    writer = EndlessWriter(100 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(writer)})
    wire.send_bytes(_WIDE)
    wire.transport.room = 256 * _KIB
    numbers = range(1, 100, 2)
    wire.send_bytes(b"".join(wire.call(number, "Pour") + data(number, message(b""), END) for number in numbers))
    for _ in range(100):
        await run_ready_callbacks()
        assert wire.transport.buffer_size <= 600 * _KIB
        wire.transport.drain()
    counts = [writer.written.get(number, 0) // (100 * _KIB) for number in numbers]
    assert min(counts) > 0
    assert max(counts) - min(counts) <= 2


async def test_a_writer_cancelled_while_it_waits_does_not_block_others(server: Server, wire: WireClient) -> None:
    writer = EndlessWriter(300 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(writer)})
    wire.transport.room = 256 * _KIB
    wire.send_bytes(
        _WIDE + b"".join(wire.call(number, "Pour") + data(number, message(b""), END) for number in (1, 3, 5))
    )
    await run_ready_callbacks()
    wire.transport.drain()
    for call in tuple(wire.channel.open_calls.calls):
        if call.stream.id == 3:
            call.cancel()
    for _ in range(10):
        await run_ready_callbacks()
        wire.transport.drain()
    assert writer.written[1] > 600 * _KIB
    assert writer.written[5] > 600 * _KIB


async def test_several_tasks_may_write_to_one_stream(server: Server, wire: WireClient) -> None:
    ended = 0

    async def push(_: bytes, context: Any) -> None:
        async def write() -> None:
            nonlocal ended
            await context.write(bytes(100 * _KIB))
            ended += 1

        await asyncio.gather(write(), write(), write())

    server.add_registered_method_handlers(SERVICE, {"Push": UNARY_STREAM(push)})
    wire.send_bytes(wire.call(1, "Push") + data(1, message(b""), END))
    await run_ready_callbacks()
    wire.send_bytes(_WIDE)
    await until(lambda: ended == 3)


async def test_a_stalled_socket_is_aborted_after_the_stall_timeout_and_a_slow_one_is_not(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(stall_timeout=60.0))
    wire = WireClient(server)
    wire.transport.room = 0
    wire.send_bytes(_WIDE + wire.call(1, "Echo") + data(1, message(bytes(10 * _KIB)), END))
    await until(lambda: wire.channel.congested)
    now = server.loop.time()
    for second in range(300):
        wire.transport.buffer_size -= 10
        wire.channel.check(now + second)
    assert not wire.transport.aborted
    for second in range(300, 363):
        wire.channel.check(now + second)
    assert wire.transport.aborted


async def test_handlers_end_when_the_client_half_closes(server: Server, wire: WireClient) -> None:
    """A client that has closed its side cannot open windows: handlers and connection end."""
    writer = EndlessWriter(16 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(writer)})
    wire.send_bytes(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    await asyncio.sleep(0)
    wire.channel.eof_received()
    await until(lambda: not wire.channel.open_calls.calls and not wire.channel.open_calls.cancelled_handlers)
    written = writer.written[1]
    await run_ready_callbacks()
    assert writer.written[1] == written
    assert wire.channel.cause is CloseCause.PEER
    await until(lambda: wire.transport.aborted)


# Requests over a limit.


async def test_incomplete_messages_of_all_streams_are_limited(server: Server, wire: WireClient) -> None:
    async def listen(requests: Any, _: Any) -> bytes:
        return b",".join([request async for request in requests])

    server.add_registered_method_handlers(SERVICE, {"Listen": STREAM_UNARY(listen)})
    body = message(bytes(90 * _KIB))[:-1]
    for number in range(1, 21, 2):
        wire.send_bytes(wire.call(number, "Listen"))
        await asyncio.sleep(0)
        for start in range(0, len(body), 16_384):
            wire.send_bytes(data(number, body[start : start + 16_384]))
            await asyncio.sleep(0)
    assert wire.channel.open_calls.request_bytes <= 300 * _KIB
    head, _, _ = await wire.response(19)
    assert head["grpc-status"] == "8"
    wire.send_bytes(b"".join(frames.rst_stream(number, 8) for number in range(1, 21, 2)))
    assert wire.channel.open_calls.request_bytes == 0


async def test_decompressed_messages_of_all_streams_are_limited(server: Server, wire: WireClient) -> None:
    """Requests count by their decompressed size until their handlers end."""
    bomb = message(gzip.compress(bytes(90 * _KIB)), 1)
    for number in range(1, 21, 2):
        wire.send_bytes(wire.call(number, "Hang", ("grpc-encoding", "gzip")) + data(number, bomb, END))
    await until(lambda: len(wire.channel.open_calls.calls) == 3)
    assert (await wire.response(19))[0]["grpc-status"] == "8"
    wire.send_bytes(b"".join(frames.rst_stream(number, 8) for number in range(1, 21, 2)))
    assert wire.channel.open_calls.request_bytes == 0


async def test_a_reader_yields_to_the_event_loop(server: Server, wire: WireClient) -> None:
    """45,000 messages that arrive at once are read over several turns of the loop."""
    read = 0

    async def count(requests: Any, _: Any) -> bytes:
        nonlocal read
        async for _request in requests:
            read += 1
        return b""

    server.add_registered_method_handlers(SERVICE, {"Count": STREAM_UNARY(count)})
    wire.send_bytes(wire.call(1, "Count") + data(1, message(b"") * 3000) * 15)
    assert wire.goaway is None
    for _ in range(5):
        await asyncio.sleep(0)
    assert 0 < read < 5000


async def test_a_second_concurrent_reader_raises(server: Server, wire: WireClient) -> None:
    async def both(_: Any, context: Any) -> None:
        first = asyncio.ensure_future(context.read())
        await asyncio.sleep(0)
        with pytest.raises(Exception, match="read"):
            await context.read()
        await context.write(await first)

    server.add_registered_method_handlers(SERVICE, {"Both": STREAM(both)})
    wire.send_bytes(wire.call(1, "Both"))
    await run_ready_callbacks()
    wire.send_bytes(data(1, message(b"a"), END))
    assert (await wire.response())[1] == message(b"a")


def test_gzip_with_many_members_is_refused_quickly() -> None:
    """Each member costs a decompressor."""
    begin = time.process_time()
    with pytest.raises(ValueError, match="members"):
        list(parts("gzip", gzip.compress(b"") * 50_000, 2**20))
    assert time.process_time() - begin < 0.5


async def test_request_bytes_after_the_response_are_discarded(server: Server, wire: WireClient) -> None:
    """While the response waits for the client's window, further request bytes do not use up the connection's window."""
    server.add_registered_method_handlers(SERVICE, {"Early": STREAM_UNARY(early)})
    wire.send_bytes(settings(initial_window_size=0) + wire.call(1, "Early"))
    await run_ready_callbacks()
    [stream] = wire.channel.http2.streams.values()
    assert stream.finished
    for _ in range(200):
        wire.send_bytes(data(1, bytes(16_384)))
    assert stream.unread == 0
    assert stream.inbox == []
    assert wire.read_frames()
    assert wire.goaway is None
    assert wire.resets == []


async def early(_: Any, __: Any) -> bytes:
    return b"early"


async def test_deferred_requests_that_are_reset_are_removed(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000, rapid_reset_age=0.0))
    wire = WireClient(server)
    wire.send_bytes(settings(initial_window_size=0))
    wire.send_bytes(wire.call(1, "Echo") + data(1, message(bytes(2000)), END))
    await run_ready_callbacks()
    assert wire.channel.http2.sender.waiting > 1000
    for number in range(3, 2003, 2):
        wire.send_bytes(wire.call(number, "Echo"))
        wire.send_bytes(frames.rst_stream(number, 8))
    assert len(wire.channel._deferred) == 0


async def test_small_pieces_of_deferred_requests_are_joined(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000))
    wire = WireClient(server)
    wire.send_bytes(settings(initial_window_size=0))
    wire.send_bytes(wire.call(1, "Echo") + data(1, message(bytes(2000)), END))
    await run_ready_callbacks()
    wire.send_bytes(wire.call(3, "Echo"))
    for _ in range(100):
        wire.send_bytes(data(3, b"ab") * 1000)
    assert len(wire.channel.http2.streams[3].inbox) < 2100

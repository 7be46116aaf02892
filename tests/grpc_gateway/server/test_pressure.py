"""Peers that take too little or send too much: who waits, what is held, and what it costs the others."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from grpc_gateway.http2 import CloseCause, Limits, frames
from grpc_gateway.server import Server, ServerOptions
from grpc_gateway.server.compression import decompress
from tests.grpc_gateway.http2.kit import END, data, settings
from tests.grpc_gateway.server.kit import SERVICE, STREAM, STREAM_UNARY, UNARY, UNARY_STREAM, settle, until
from tests.grpc_gateway.server.wire import Wire, message

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
async def wire(server: Server) -> Wire:
    return Wire(server)


# Answers that are not taken.


class Pourer:
    """Handlers that write without end; how much each has written, by stream."""

    def __init__(self, size: int) -> None:
        self.written: dict[int, int] = {}
        self._message = bytes(size)

    async def __call__(self, _: bytes, context: Any) -> None:
        number = context.stream.id
        while True:
            await context.write(self._message)
            self.written[number] = self.written.get(number, 0) + len(self._message)


async def test_a_writer_gives_others_a_turn(server: Server, wire: Wire) -> None:
    """Windows and socket take everything; still neither the loop nor the output may be one stream's."""
    pourer = Pourer(16 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pourer)})
    wire.say(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pourer.written[1] <= 1024 * _KIB
    assert max(map(len, wire.transport.written)) <= 256 * _KIB


async def test_small_messages_are_no_way_around(server: Server, wire: Wire) -> None:
    pourer = Pourer(1)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pourer)})
    wire.say(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pourer.written[1] <= 1000


async def test_a_full_socket_is_shared_fairly(server: Server, wire: Wire) -> None:
    """Who has waited longest writes first, and a writer at a time, so that the bound holds for all of them together."""
    pourer = Pourer(100 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pourer)})
    wire.say(_WIDE)
    wire.transport.room = 256 * _KIB
    numbers = range(1, 100, 2)
    wire.say(b"".join(wire.call(number, "Pour") + data(number, message(b""), END) for number in numbers))
    for _ in range(100):
        await settle()
        assert wire.transport.buffer_size <= 600 * _KIB
        wire.transport.drain()
    counts = [pourer.written.get(number, 0) // (100 * _KIB) for number in numbers]
    assert min(counts) > 0
    assert max(counts) - min(counts) <= 2


async def test_a_writer_that_goes_while_it_waits_holds_up_nobody(server: Server, wire: Wire) -> None:
    pourer = Pourer(300 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pourer)})
    wire.transport.room = 256 * _KIB
    wire.say(_WIDE + b"".join(wire.call(number, "Pour") + data(number, message(b""), END) for number in (1, 3, 5)))
    await settle()
    wire.transport.drain()
    for call in tuple(wire.channel.calls):
        if call.stream.id == 3:
            call.cancel()
    for _ in range(10):
        await settle()
        wire.transport.drain()
    assert pourer.written[1] > 600 * _KIB
    assert pourer.written[5] > 600 * _KIB


async def test_two_tasks_write_to_one_stream(server: Server, wire: Wire) -> None:
    ended = 0

    async def push(_: bytes, context: Any) -> None:
        async def write() -> None:
            nonlocal ended
            await context.write(bytes(100 * _KIB))
            ended += 1

        await asyncio.gather(write(), write(), write())

    server.add_registered_method_handlers(SERVICE, {"Push": UNARY_STREAM(push)})
    wire.say(wire.call(1, "Push") + data(1, message(b""), END))
    await settle()
    wire.say(_WIDE)
    await until(lambda: ended == 3)


async def test_a_socket_that_takes_little_is_not_given_up(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(stall_timeout=60.0))
    wire = Wire(server)
    wire.transport.room = 0
    wire.say(_WIDE + wire.call(1, "Echo") + data(1, message(bytes(10 * _KIB)), END))
    await until(lambda: wire.channel.congested)
    now = server.loop.time()
    for second in range(300):
        wire.transport.buffer_size -= 10
        wire.channel.check(now + second)
    assert not wire.transport.aborted
    for second in range(300, 363):
        wire.channel.check(now + second)
    assert wire.transport.aborted


async def test_a_client_that_hangs_up_is_not_written_for(server: Server, wire: Wire) -> None:
    """It has closed its side, and does not read: handlers end, and so does the connection."""
    pourer = Pourer(16 * _KIB)
    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pourer)})
    wire.say(_WIDE + wire.call(1, "Pour") + data(1, message(b""), END))
    await asyncio.sleep(0)
    wire.channel.eof_received()
    await until(lambda: not wire.channel.calls and not wire.channel.lingering)
    written = pourer.written[1]
    await settle()
    assert pourer.written[1] == written
    assert wire.channel.cause is CloseCause.PEER
    await until(lambda: wire.transport.aborted)


# Requests that are too much.


async def test_unfinished_messages_of_streams_are_bounded(server: Server, wire: Wire) -> None:
    async def listen(requests: Any, _: Any) -> bytes:
        return b",".join([request async for request in requests])

    server.add_registered_method_handlers(SERVICE, {"Listen": STREAM_UNARY(listen)})
    body = message(bytes(90 * _KIB))[:-1]
    for number in range(1, 21, 2):
        wire.say(wire.call(number, "Listen"))
        await asyncio.sleep(0)
        for start in range(0, len(body), 16_384):
            wire.say(data(number, body[start : start + 16_384]))
            await asyncio.sleep(0)
    assert wire.channel.held <= 300 * _KIB
    head, _, _ = await wire.answer(19)
    assert head["grpc-status"] == "8"
    wire.say(b"".join(frames.rst_stream(number, 8) for number in range(1, 21, 2)))
    assert wire.channel.held == 0


async def test_what_a_message_became_is_bounded(server: Server, wire: Wire) -> None:
    """Handlers that go on hold what they were called with, however small it came."""
    bomb = message(gzip.compress(bytes(90 * _KIB)), 1)
    for number in range(1, 21, 2):
        wire.say(wire.call(number, "Hang", ("grpc-encoding", "gzip")) + data(number, bomb, END))
    await until(lambda: len(wire.channel.calls) == 3)
    assert (await wire.answer(19))[0]["grpc-status"] == "8"
    wire.say(b"".join(frames.rst_stream(number, 8) for number in range(1, 21, 2)))
    assert wire.channel.held == 0


async def test_a_reader_gives_others_a_turn(server: Server, wire: Wire) -> None:
    """45,000 messages in one read are not one turn of the loop."""
    read = 0

    async def count(requests: Any, _: Any) -> bytes:
        nonlocal read
        async for _request in requests:
            read += 1
        return b""

    server.add_registered_method_handlers(SERVICE, {"Count": STREAM_UNARY(count)})
    wire.say(wire.call(1, "Count") + data(1, message(b"") * 3000) * 15)
    assert wire.goaway is None
    for _ in range(5):
        await asyncio.sleep(0)
    assert 0 < read < 5000


async def test_two_readers_of_one_stream(server: Server, wire: Wire) -> None:
    async def both(_: Any, context: Any) -> None:
        first = asyncio.ensure_future(context.read())
        await asyncio.sleep(0)
        with pytest.raises(Exception, match="read"):
            await context.read()
        await context.write(await first)

    server.add_registered_method_handlers(SERVICE, {"Both": STREAM(both)})
    wire.say(wire.call(1, "Both"))
    await settle()
    wire.say(data(1, message(b"a"), END))
    assert (await wire.answer())[1] == message(b"a")


def test_gzip_of_many_members_is_refused() -> None:
    """Each costs a whole inflater; what is left of the data would be copied as often."""
    begin = time.process_time()
    with pytest.raises(ValueError, match="members"):
        decompress("gzip", gzip.compress(b"") * 50_000, 2**20)
    assert time.process_time() - begin < 0.5


async def test_what_comes_behind_the_answer_is_thrown_away(server: Server, wire: Wire) -> None:
    """The answer waits for the client, which still sends: the others' share of the window is not used up by that."""
    server.add_registered_method_handlers(SERVICE, {"Early": STREAM_UNARY(early)})
    wire.say(settings(initial_window_size=0) + wire.call(1, "Early"))
    await settle()
    [stream] = wire.channel.http2.streams.values()
    assert stream.finished
    for _ in range(200):
        wire.say(data(1, bytes(16_384)))
    assert stream.unread == 0
    assert stream.inbox == []
    assert wire.listen()
    assert wire.goaway is None
    assert wire.resets == []


async def early(_: Any, __: Any) -> bytes:
    return b"early"


async def test_reset_requests_that_were_not_taken_up_are_forgotten(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000, young=0.0))
    wire = Wire(server)
    wire.say(settings(initial_window_size=0))
    wire.say(wire.call(1, "Echo") + data(1, message(bytes(2000)), END))
    await settle()
    assert wire.channel.http2.waiting > 1000
    for number in range(3, 2003, 2):
        wire.say(wire.call(number, "Echo"))
        wire.say(frames.rst_stream(number, 8))
    assert len(wire.channel._deferred) == 0


async def test_requests_that_are_not_taken_up_are_held_as_what_they_are(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000))
    wire = Wire(server)
    wire.say(settings(initial_window_size=0))
    wire.say(wire.call(1, "Echo") + data(1, message(bytes(2000)), END))
    await settle()
    wire.say(wire.call(3, "Echo"))
    for _ in range(100):
        wire.say(data(3, b"ab") * 1000)
    assert len(wire.channel.http2.streams[3].inbox) < 2100

"""Requests that do not arrive in full: their timeouts, and the memory that they take."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from grpc_gateway.http2 import CloseCause, frames
from grpc_gateway.server import Server, ServerOptions
from tests.grpc_gateway.http2.http2_client import END, data, frame_bytes
from tests.grpc_gateway.server.servers import SERVICE, STREAM_UNARY, UNARY
from tests.grpc_gateway.server.wire_client import WireClient, message

pytestmark = pytest.mark.anyio

_KIB = 1024
_DEADLINE_EXCEEDED = "4"


async def length(request: bytes, _: Any) -> bytes:
    return str(len(request)).encode()


async def count(requests: Any, _: Any) -> bytes:
    return str([len(request) async for request in requests]).encode()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(ServerOptions(max_receive_message=4096 * _KIB, max_unfinished_bytes=1024 * _KIB))
    server.add_registered_method_handlers(SERVICE, {"Length": UNARY(length), "Count": STREAM_UNARY(count)})
    yield server
    for connection in tuple(server.connections):
        connection.connection_lost(None)
    await server.close()


@pytest.fixture
async def wire(server: Server) -> WireClient:
    return WireClient(server)


def check_in(wire: WireClient, seconds: float) -> None:
    """Apply the timeouts as if `seconds` had passed."""
    wire.channel.check(wire.channel.loop.time() + seconds)


@pytest.mark.parametrize("name", ["Length", "Count"])
async def test_an_unfinished_request_ends_after_its_timeout(wire: WireClient, name: str) -> None:
    wire.send_bytes(wire.call(1, name) + data(1, message(bytes(100))[:50]))
    await asyncio.sleep(0.01)
    check_in(wire, 29)
    assert wire.channel.open_streams == 1
    # A byte is no reason to wait longer.
    wire.send_bytes(data(1, b"x"))
    await asyncio.sleep(0.01)
    check_in(wire, 31)
    head, _, trailers = await wire.response()
    assert (head | trailers)["grpc-status"] == _DEADLINE_EXCEEDED
    assert wire.channel.open_streams == 0
    assert not wire.channel.open_calls.unfinished
    assert wire.channel.open_calls.request_bytes == 0


async def test_a_request_of_headers_alone_ends_after_its_timeout(wire: WireClient) -> None:
    wire.send_bytes(wire.call(1, "Length"))
    check_in(wire, 31)
    assert (await wire.response())[0]["grpc-status"] == _DEADLINE_EXCEEDED


async def test_a_large_message_has_more_time(wire: WireClient) -> None:
    octets = message(bytes(700 * _KIB))
    wire.send_bytes(wire.call(1, "Length") + b"".join(_data(1, octets[:-1])))
    check_in(wire, 40)
    assert wire.channel.open_streams == 1
    wire.send_bytes(data(1, octets[-1:], END))
    assert (await wire.response())[1] == message(str(700 * _KIB).encode())


async def test_a_request_that_is_not_grpc_ends_after_its_timeout(wire: WireClient) -> None:
    wire.send_bytes(wire.headers(1, (":method", "PUT"), (":scheme", "http"), (":path", "/"), (":authority", "x")))
    check_in(wire, 29)
    assert wire.channel.open_streams == 1
    check_in(wire, 31)
    assert (await wire.response())[0][":status"] == "405"
    assert not wire.channel.open_calls.unfinished


async def test_a_stream_between_messages_has_no_timeout(wire: WireClient) -> None:
    wire.send_bytes(wire.call(1, "Count") + data(1, message(bytes(10))))
    await asyncio.sleep(0.01)
    check_in(wire, 100)
    wire.send_bytes(data(1, message(bytes(20)), END))
    assert (await wire.response())[1] == message(b"[10, 20]")


@pytest.mark.parametrize(
    "rest",
    [data(1, bytes(100))[:-1], data(1, b"")[:3], frame_bytes(frames.HEADERS, 0, 3, b"\x82")],
    ids=["DATA", "frame header", "header block"],
)
async def test_an_unfinished_frame_ends_the_connection(wire: WireClient, rest: bytes) -> None:
    wire.send_bytes(wire.call(1, "Count"))
    wire.send_bytes(rest)
    check_in(wire, 29)
    assert wire.channel.cause is None
    check_in(wire, 31)
    await asyncio.sleep(0.01)
    assert wire.channel.cause is CloseCause.ABUSE


async def test_a_full_socket_stops_the_timeouts(wire: WireClient) -> None:
    """The rest cannot arrive while the socket is not read."""
    wire.send_bytes(wire.call(1, "Length") + data(1, b"\0\0")[:-1])
    wire.channel.pause_writing()
    check_in(wire, 50)
    wire.channel.resume_writing()
    check_in(wire, 60)
    assert wire.channel.cause is None
    assert wire.channel.open_streams == 1


def _data(stream: int, octets: bytes) -> list[bytes]:
    return [data(stream, octets[begin : begin + 16_384]) for begin in range(0, len(octets), 16_384)]


async def test_over_the_memory_limit_streams_are_read_one_at_a_time(wire: WireClient) -> None:
    """Four messages of 3 MiB on windows of 1 MiB, 1 MiB in all: each is completed in its turn."""
    streams = (1, 3, 5, 7)
    wire.send_bytes(b"".join(wire.call(stream, "Length") for stream in streams))
    octets = message(bytes(3072 * _KIB))
    rests = {stream: _data(stream, octets) for stream in streams}
    windows = dict.fromkeys(streams, 1024 * _KIB)
    parsed = peak = 0
    while rests:
        progressed = False
        for stream, rest in list(rests.items()):
            size = len(rest[0]) - 9
            if windows[stream] >= size:
                windows[stream] -= size
                last = len(rest) == 1
                wire.send_bytes(data(stream, rest.pop(0)[9:], END if last else 0))
                progressed = True
                if last:
                    del rests[stream]
        peak = max(peak, wire.channel.open_calls.request_bytes)
        for received in wire.read_frames()[parsed:]:
            parsed += 1
            if received.kind == frames.WINDOW_UPDATE and received.stream_id in windows:
                windows[received.stream_id] += int.from_bytes(received.payload)
        # The handlers of complete requests run.
        await asyncio.sleep(0 if progressed else 0.001)
    for stream in streams:
        assert (await wire.response(stream))[1] == message(str(3072 * _KIB).encode())
    # One message, and up to a window of each other one; together the messages are 12 MiB.
    assert peak <= (3 + 4 + 1) * 1024 * _KIB
    assert wire.channel.open_calls.request_bytes == 0

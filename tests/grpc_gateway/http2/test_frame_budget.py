"""The budget of frames that carry nothing by themselves, and the slices in which a read is handled."""

import pytest

from grpc_gateway.http2 import frames
from grpc_gateway.http2.abuse import FRAME_BURST, FRAME_RATE, FRAMES_PER_REQUEST, SMALL_DATA, Abuse
from grpc_gateway.http2.errors import ErrorCode
from tests.grpc_gateway.http2.http2_client import END, HEAD, TRAILERS, Client, data

# Frames that are charged, by name; stream 1 is closed and stream 3 open.
CHARGED: dict[str, bytes] = {
    "WINDOW_UPDATE of the connection": frames.window_update(0, 1),
    "WINDOW_UPDATE of a stream": frames.window_update(3, 1),
    "WINDOW_UPDATE of a closed stream": frames.window_update(1, 1),
    "RST_STREAM of a closed stream": frames.rst_stream(1, 8),
    "acknowledged PING": frames.ping(b"12345678", ack=True),
    "acknowledged SETTINGS": frames.SETTINGS_ACK,
    "DATA of a few bytes": data(3, bytes(SMALL_DATA - 1)),
}


def connected() -> Client:
    """Return a client with a closed stream 1 and an open stream 3."""
    client = Client().connect()
    [stream] = client.request(1)
    stream.send_response(HEAD, b"\0\0\0\0\0", b"", TRAILERS)
    client.send(client.headers(3))
    client.connection.sender.flushed_bytes = 0
    return client


def budget_of(client: Client) -> int:
    """Return the number of frames that the client may send at once: the burst, and what its requests have earned."""
    return FRAME_BURST + FRAMES_PER_REQUEST * client.connection.requests


@pytest.mark.parametrize("name", CHARGED)
def test_frames_over_the_budget_end_the_connection(name: str) -> None:
    client = connected()
    for _ in range(budget_of(client) // 100):
        client.send(CHARGED[name] * 100)
    assert not client.connection.closed
    client.send(CHARGED[name] * 1000)
    assert client.goaway is not None
    assert client.goaway[1] is ErrorCode.ENHANCE_YOUR_CALM
    assert client.connection.fault is not None
    assert client.connection.fault.reason == Abuse.FRAME_FLOOD


def test_frames_at_the_rate_are_not_abuse() -> None:
    client = connected()
    for _ in range(60):
        client.now += 1
        client.send(CHARGED["WINDOW_UPDATE of the connection"] * int(FRAME_RATE))
    assert client.goaway is None


def test_idle_time_earns_no_more_than_the_burst() -> None:
    client = connected()
    client.send(CHARGED["WINDOW_UPDATE of the connection"] * FRAME_BURST)
    client.now += 1_000_000
    client.send(CHARGED["WINDOW_UPDATE of the connection"] * FRAME_BURST)
    assert not client.connection.closed
    client.send(CHARGED["WINDOW_UPDATE of the connection"] * 2 * FRAMES_PER_REQUEST * 2)
    assert client.goaway is not None


def test_window_updates_for_a_large_response_are_not_abuse() -> None:
    """Two WINDOW_UPDATEs for each DATA frame of 64 responses of 16 MiB, at one moment."""
    client = Client().connect()
    updates = frames.window_update(0, 16_384)
    client.send(frames.window_update(0, 2**30))
    for number in range(1, 128, 2):
        [stream] = client.request(number)
        client.send(frames.window_update(number, 2**30))
        stream.send_headers(HEAD)
        for _ in range(4):
            stream.send_data(bytes(4 * 2**20))
            client.connection.sender.take()
            client.send((updates + frames.window_update(number, 16_384)) * 256)
        stream.send_trailers(TRAILERS)
    assert client.goaway is None


def test_many_frames_are_handled_in_slices() -> None:
    client = Client().connect()
    requests = b"".join(client.headers(number, flags=END) for number in range(1, 2001, 2))
    changed = client.connection.receive(requests, 0.0)
    assert 0 < len(changed) < 1000
    # Bytes received meanwhile are handled after the others.
    assert client.connection.receive(client.headers(2001, flags=END), 0.0) == []
    while client.connection.pending:
        more = client.connection.receive_more(0.0)
        assert 0 < len(more) <= 500
        changed += more
    assert [stream.id for stream in changed] == list(range(1, 2002, 2))
    assert client.connection.receive_more(0.0) == []


@pytest.mark.parametrize("size", [1, 7, 4096, 5000, 100_000])
@pytest.mark.parametrize("unfinished", [0, 1, 9, 12])
def test_slices_keep_every_frame(size: int, unfinished: int) -> None:
    """Reads of any size yield the same frames; an incomplete frame waits for its rest."""
    client = Client().connect()
    client.send(client.headers(1))
    octets = b"".join(data(1, bytes([number % 256]) * (number * 7 % 900)) for number in range(1, 120))
    rest = data(1, b"the last")
    octets += rest[:unfinished]
    for position in range(0, len(octets), size):
        client.send(octets[position : position + size])
    assert not client.connection.pending
    [stream] = client.send(rest[unfinished:])
    assert (
        b"".join(stream.inbox)
        == b"".join(bytes([number % 256]) * (number * 7 % 900) for number in range(1, 120)) + b"the last"
    )


def test_a_fault_ends_the_slices() -> None:
    client = Client().connect()
    client.connection.receive(frames.window_update(0, 0) + frames.window_update(0, 1) * 10_000, 0.0)
    assert client.connection.fault is not None
    assert client.connection.receive_more(0.0) == []

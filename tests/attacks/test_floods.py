"""Floods of frames that cost the server more than the sender. Each ends with GOAWAY before it is complete."""

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.attack_limits import MIB, within_limits
from tests.attacks.raw_client import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    Client,
    Code,
    Kind,
    data,
    frame,
    rst_stream,
    window_update,
)
from tests.conformance.server_process import Server

_DUPLEX = "/grpc.testing.TestService/FullDuplexCall"
_FRAMES = 20_000
_PING = frame(Kind.PING, payload=b"12345678")
_SELF_DEPENDENT = struct.Struct("!IB")

Flood = Callable[[Client], bytes]


def _requests(client: Client, count: int, *, end: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield stream and HEADERS of `count` requests. After the first, blocks are a few indices of the dynamic table."""
    for number in range(2):
        stream = 2 * number + 1
        yield stream, client.headers(stream, client.request(_DUPLEX), end=end)
    block = client.block(client.request(_DUPLEX))
    for stream in range(5, 2 * count, 2):
        yield stream, frame(Kind.HEADERS, END_HEADERS | END_STREAM * end, stream, block)


def _after_each_request(after: Callable[[int], bytes], *, end: bool = False) -> Flood:
    """Return requests, each followed by the frame that `after` returns."""
    return lambda client: b"".join(headers + after(stream) for stream, headers in _requests(client, _FRAMES, end=end))


def _on_one_stream(repeated: bytes) -> Flood:
    """Return one request, followed by a repeated frame."""
    return lambda client: client.headers(1, client.request(_DUPLEX)) + repeated * _FRAMES


def _continuation(repeated: bytes) -> Flood:
    """Return an endless field block."""
    return lambda client: frame(Kind.HEADERS, 0, 1, client.block(client.request(_DUPLEX))) + repeated * _FRAMES


def _repeat(octets: bytes) -> Flood:
    return lambda _: octets * _FRAMES


# RFC 9113 section 10.5 leaves the measures to endpoints; ENHANCE_YOUR_CALM (section 7) is the code for excessive load.
FLOODS: dict[str, Flood] = {
    # CVE-2023-44487: cancelled streams do not count as concurrent, but their handlers may still run.
    "rapid reset": _after_each_request(rst_stream),
    # CVE-2025-8671, "MadeYouReset": the same with resets by the server.
    "made to reset by WINDOW_UPDATE of 0": _after_each_request(lambda stream: window_update(stream, 0)),
    "made to reset by window overflow": _after_each_request(lambda stream: window_update(stream, (1 << 31) - 1)),
    "made to reset by DATA after the end": _after_each_request(lambda stream: data(stream, b"more"), end=True),
    "made to reset by PRIORITY of its own": _after_each_request(
        lambda stream: frame(Kind.PRIORITY, 0, stream, _SELF_DEPENDENT.pack(stream, 0))
    ),
    "made to reset by PRIORITY of 4 bytes": _after_each_request(
        lambda stream: frame(Kind.PRIORITY, 0, stream, bytes(4))
    ),
    # CERT VU#421644: endless CONTINUATION frames, with and without content.
    "CONTINUATION": _continuation(frame(Kind.CONTINUATION, 0, 1, b"\0\1a\1b")),
    "empty CONTINUATION": _continuation(frame(Kind.CONTINUATION, 0, 1)),
    # CVE-2019-9512, -9515, -9518, -9513: frames that have to be answered or parsed.
    "PING": _repeat(_PING),
    "SETTINGS": _repeat(frame(Kind.SETTINGS)),
    "SETTINGS of 0.5 KiB": _repeat(frame(Kind.SETTINGS, payload=struct.pack("!HI", 0xFFF0, 1) * 85)),
    "empty DATA": _on_one_stream(frame(Kind.DATA, 0, 1)),
    "DATA of padding": _on_one_stream(frame(Kind.DATA, PADDED, 1, b"\xff" + bytes(255))),
    "PRIORITY": _repeat(frame(Kind.PRIORITY, 0, 1, _SELF_DEPENDENT.pack(3, 0))),
    "frames of an unknown type": _repeat(frame(0xFA, 0, 0, bytes(8))),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_with_goaway(server: Server, client: Client, name: str) -> None:
    octets = FLOODS[name](client)
    with within_limits(server):
        client.blast(octets)
        assert client.goaway_code() == Code.ENHANCE_YOUR_CALM


def test_streams_over_the_limit_are_refused_before_goaway(server: Server, client: Client) -> None:
    """RFC 9113 section 5.1.2. The memory limit is higher for the streams that are allowed."""
    octets = b"".join(headers for _, headers in _requests(client, _FRAMES))
    with within_limits(server, growth=96 * MIB):
        client.blast(octets)
        assert client.goaway_code() == Code.ENHANCE_YOUR_CALM
    refused = [response.reset for response in client.responses.values()]
    assert refused
    assert set(refused) <= {Code.REFUSED_STREAM, None}


def test_a_ping_flood_ends_with_too_many_pings(server: Server, client: Client) -> None:
    """gRFC A8: clients look for ENHANCE_YOUR_CALM with the debug data too_many_pings."""
    with within_limits(server):
        client.blast(_PING * _FRAMES)
        assert client.goaway_code() == Code.ENHANCE_YOUR_CALM
    assert client.goaway is not None
    assert client.goaway.payload[8:] == b"too_many_pings"

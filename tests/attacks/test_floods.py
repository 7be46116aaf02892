"""Frames that cost the sender little and the server much. Each flood ends with GOAWAY, long before it is through."""

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.raw import (
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
from tests.attacks.siege import MIB, siege
from tests.conformance.process import Server

_DUPLEX = "/grpc.testing.TestService/FullDuplexCall"
_FRAMES = 20_000
_PING = frame(Kind.PING, payload=b"whatever")
_SELF_DEPENDENT = struct.Struct("!IB")

Flood = Callable[[Client], bytes]


def _opened(client: Client, count: int, *, end: bool = False) -> Iterator[tuple[int, bytes]]:
    """Stream and HEADERS of `count` requests. From the second on a block is a few indices into the dynamic table."""
    for number in range(2):
        stream = 2 * number + 1
        yield stream, client.headers(stream, client.request(_DUPLEX), end=end)
    block = client.block(client.request(_DUPLEX))
    for stream in range(5, 2 * count, 2):
        yield stream, frame(Kind.HEADERS, END_HEADERS | END_STREAM * end, stream, block)


def _each(after: Callable[[int], bytes], *, end: bool = False) -> Flood:
    """Requests, each followed by something."""
    return lambda client: b"".join(opened + after(stream) for stream, opened in _opened(client, _FRAMES, end=end))


def _on_one_stream(again: bytes) -> Flood:
    """One request, and then the same again and again."""
    return lambda client: client.headers(1, client.request(_DUPLEX)) + again * _FRAMES


def _continuation(again: bytes) -> Flood:
    """A field block that never ends."""
    return lambda client: frame(Kind.HEADERS, 0, 1, client.block(client.request(_DUPLEX))) + again * _FRAMES


def _again(octets: bytes) -> Flood:
    return lambda _: octets * _FRAMES


# RFC 9113 section 10.5 leaves the measures to the endpoint; ENHANCE_YOUR_CALM (section 7) is the code for load.
FLOODS: dict[str, Flood] = {
    # CVE-2023-44487: cancelled streams do not count as concurrent, what they began does.
    "rapid reset": _each(rst_stream),
    # CVE-2025-8671, "MadeYouReset": the same, with the resets coming from the server.
    "made to reset by WINDOW_UPDATE of 0": _each(lambda stream: window_update(stream, 0)),
    "made to reset by window overflow": _each(lambda stream: window_update(stream, (1 << 31) - 1)),
    "made to reset by DATA after the end": _each(lambda stream: data(stream, b"more"), end=True),
    "made to reset by PRIORITY of its own": _each(
        lambda stream: frame(Kind.PRIORITY, 0, stream, _SELF_DEPENDENT.pack(stream, 0))
    ),
    "made to reset by PRIORITY of 4 bytes": _each(lambda stream: frame(Kind.PRIORITY, 0, stream, bytes(4))),
    # CERT VU#421644: CONTINUATION without end, with and without anything in it.
    "CONTINUATION": _continuation(frame(Kind.CONTINUATION, 0, 1, b"\0\1a\1b")),
    "empty CONTINUATION": _continuation(frame(Kind.CONTINUATION, 0, 1)),
    # CVE-2019-9512, -9515, -9518, -9513: everything that is answered, or read, for nothing.
    "PING": _again(_PING),
    "SETTINGS": _again(frame(Kind.SETTINGS)),
    "SETTINGS of 0.5 KiB": _again(frame(Kind.SETTINGS, payload=struct.pack("!HI", 0xFFF0, 1) * 85)),
    "empty DATA": _on_one_stream(frame(Kind.DATA, 0, 1)),
    "DATA of padding": _on_one_stream(frame(Kind.DATA, PADDED, 1, b"\xff" + bytes(255))),
    "PRIORITY": _again(frame(Kind.PRIORITY, 0, 1, _SELF_DEPENDENT.pack(3, 0))),
    "frames of an unknown type": _again(frame(0xFA, 0, 0, bytes(8))),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_with_goaway(server: Server, client: Client, name: str) -> None:
    octets = FLOODS[name](client)
    with siege(server):
        client.blast(octets)
        assert client.fate() == Code.ENHANCE_YOUR_CALM


def test_requests_beyond_the_limit_are_refused(server: Server, client: Client) -> None:
    """RFC 9113 section 5.1.2; who goes on all the same is told to go. The streams that were allowed cost something."""
    octets = b"".join(opened for _, opened in _opened(client, _FRAMES))
    with siege(server, growth=96 * MIB):
        client.blast(octets)
        assert client.fate() == Code.ENHANCE_YOUR_CALM
    refused = [answer.reset for answer in client.answers.values()]
    assert refused
    assert set(refused) <= {Code.REFUSED_STREAM, None}


def test_pings_are_answered_until_they_are_too_many(server: Server, client: Client) -> None:
    """gRFC A8: too many pings end with ENHANCE_YOUR_CALM and the words too_many_pings, which clients look for."""
    with siege(server):
        client.blast(_PING * _FRAMES)
        assert client.fate() == Code.ENHANCE_YOUR_CALM
    assert client.goaway is not None
    assert client.goaway.payload[8:] == b"too_many_pings"

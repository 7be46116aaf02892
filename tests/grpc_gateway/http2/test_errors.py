"""Errors of connections and streams; h2spec covers them, too, with less exact codes."""

import pytest

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.limits import Limits
from tests.grpc_gateway.http2.http2_client import (
    END,
    END_HEADERS,
    HEAD,
    REQUEST,
    TRAILERS,
    Client,
    data,
    frame_bytes,
    settings,
)


def without(name: str) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in REQUEST if pair[0] != name)


PROTOCOL, SIZE, CLOSED = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.STREAM_CLOSED
FLOW, COMPRESSION, CALM = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM
CONNECTION_FAULTS: dict[str, tuple[bytes, ErrorCode]] = {
    "a frame that is too large": (frame_bytes(frames.DATA, 0, 1, bytes(16_385)), SIZE),
    "DATA on stream 0": (data(0, b"x"), PROTOCOL),
    "DATA on an idle stream": (data(1, b"x"), PROTOCOL),
    "DATA on an even stream": (data(2, b"x"), PROTOCOL),
    "HEADERS on stream 0": (frame_bytes(frames.HEADERS, END_HEADERS, 0, b"\x82"), PROTOCOL),
    "HEADERS on an even stream": (frame_bytes(frames.HEADERS, END_HEADERS, 2, b"\x82"), PROTOCOL),
    "HEADERS of padding": (
        frame_bytes(frames.HEADERS, END_HEADERS | frames.PADDED, 1, b"\x05\x82"),
        PROTOCOL,
    ),
    "HEADERS without room for their priority": (frame_bytes(frames.HEADERS, END_HEADERS | 0x20, 1, b"\x82"), SIZE),
    "HEADERS that depend on themselves": (frame_bytes(frames.HEADERS, END_HEADERS | 0x20, 1, b"\0\0\0\1\0"), PROTOCOL),
    "a malformed block": (frame_bytes(frames.HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION),
    "an interrupted block": (frame_bytes(frames.HEADERS, 0, 1, b"\x82") + frames.ping(bytes(8)), PROTOCOL),
    "a block that continues on another stream": (
        frame_bytes(frames.HEADERS, 0, 1, b"\x82") + frame_bytes(frames.CONTINUATION, 0, 3, b""),
        PROTOCOL,
    ),
    "CONTINUATION alone": (frame_bytes(frames.CONTINUATION, END_HEADERS, 1, b"\x82"), PROTOCOL),
    "PRIORITY on stream 0": (frame_bytes(frames.PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    "RST_STREAM on stream 0": (frames.rst_stream(0, 8), PROTOCOL),
    "RST_STREAM on an idle stream": (frames.rst_stream(1, 8), PROTOCOL),
    "RST_STREAM of 3 bytes": (frame_bytes(frames.RST_STREAM, 0, 1, bytes(3)), SIZE),
    "SETTINGS on a stream": (frame_bytes(frames.SETTINGS, 0, 1), PROTOCOL),
    "SETTINGS of 5 bytes": (frame_bytes(frames.SETTINGS, 0, 0, bytes(5)), SIZE),
    "SETTINGS acknowledged with a payload": (frame_bytes(frames.SETTINGS, 1, 0, bytes(6)), SIZE),
    "ENABLE_PUSH 2": (settings(enable_push=2), PROTOCOL),
    "INITIAL_WINDOW_SIZE 2^31": (settings(initial_window_size=2**31), FLOW),
    "MAX_FRAME_SIZE 16383": (settings(max_frame_size=16_383), PROTOCOL),
    "MAX_FRAME_SIZE 2^24": (settings(max_frame_size=2**24), PROTOCOL),
    "PUSH_PROMISE": (frame_bytes(frames.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL),
    "PING on a stream": (frame_bytes(frames.PING, 0, 1, bytes(8)), PROTOCOL),
    "PING of 7 bytes": (frame_bytes(frames.PING, 0, 0, bytes(7)), SIZE),
    "GOAWAY on a stream": (frame_bytes(frames.GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    "GOAWAY of 7 bytes": (frame_bytes(frames.GOAWAY, 0, 0, bytes(7)), SIZE),
    "WINDOW_UPDATE of 3 bytes": (frame_bytes(frames.WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    "WINDOW_UPDATE by 0": (frames.window_update(0, 0), PROTOCOL),
    "WINDOW_UPDATE on an idle stream": (frames.window_update(1, 1), PROTOCOL),
    "a window that overflows": (frames.window_update(0, 2**31 - 1), FLOW),
}


@pytest.mark.parametrize("name", CONNECTION_FAULTS)
def test_connection_error_sends_goaway(client: Client, name: str) -> None:
    sent, code = CONNECTION_FAULTS[name]
    client.send(sent)
    assert client.goaway is not None
    assert client.goaway[1] is code
    assert client.connection.closed


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", frames.PREFACE + frames.ping(bytes(8))]
)
def test_a_wrong_preface_is_a_protocol_error(start: bytes) -> None:
    client = Client()
    client.send(start)
    assert client.goaway is not None
    assert client.goaway[1] is PROTOCOL


def test_a_lower_stream_identifier_is_a_protocol_error(client: Client) -> None:
    client.request(5)
    client.send(client.headers(3))
    assert client.goaway is not None
    assert client.goaway[:2] == (5, PROTOCOL)


def test_headers_on_a_closed_stream_end_the_connection(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"", TRAILERS)
    client.send(client.headers(1))
    assert client.goaway is not None
    assert client.goaway[1] is CLOSED


# Errors of streams.

MALFORMED: dict[str, tuple[tuple[str, str], ...]] = {
    "upper case": (*REQUEST, ("Upper", "x")),
    "no name": (*REQUEST, ("", "x")),
    "a space in a name": (*REQUEST, ("a b", "x")),
    "a line feed in a value": (*REQUEST, ("a", "x\ny")),
    "NUL in a value": (*REQUEST, ("a", "x\0y")),
    "a space before a value": (*REQUEST, ("a", " x")),
    "a tab after a value": (*REQUEST, ("a", "x\t")),
    "connection": (*REQUEST, ("connection", "close")),
    "transfer-encoding": (*REQUEST, ("transfer-encoding", "chunked")),
    "te": (*without("te"), ("te", "gzip")),
    "no :method": without(":method"),
    "no :scheme": without(":scheme"),
    "no :path": without(":path"),
    "an empty :path": (*without(":path")[:2], (":path", "")),
    "a :path without a slash": ((":path", "a"), *without(":path")),
    "two :paths": ((":path", "/"), *REQUEST),
    "an unknown pseudo field": ((":protocol", "x"), *REQUEST),
    "a pseudo field of responses": ((":status", "200"), *REQUEST),
    "a pseudo field after others": (*without(":path"), (":path", "/")),
    "CONNECT with a path": ((":method", "CONNECT"), (":authority", "x"), (":path", "/")),
    "a content-length that is not a number": (*REQUEST, ("content-length", "+1")),
    "two content-lengths": (*REQUEST, ("content-length", "1"), ("content-length", "2")),
    "another host": (*REQUEST, ("host", "y")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_resets_its_stream(client: Client, name: str) -> None:
    assert client.send(client.headers(1, *MALFORMED[name])) == []
    assert client.resets == [(1, PROTOCOL)]
    # The connection stays usable, and its header table is up to date.
    assert client.request(3)[0].head.path == "/a/B"
    assert client.goaway is None


@pytest.mark.parametrize(("length", "body"), [("5", b"four"), ("3", b"four"), ("1", b"")])
def test_a_wrong_content_length_resets_the_stream(client: Client, length: str, body: bytes) -> None:
    client.send(client.headers(1, *REQUEST, ("content-length", length)) + data(1, body, END))
    assert client.resets == [(1, PROTOCOL)]


def test_a_content_length_without_a_body_resets_the_stream(client: Client) -> None:
    client.send(client.headers(1, *REQUEST, ("content-length", "7"), flags=END))
    assert client.resets == [(1, PROTOCOL)]


def test_a_right_content_length_is_accepted(client: Client) -> None:
    [stream] = client.send(client.headers(1, *REQUEST, ("content-length", "4")) + data(1, b"four", END))
    assert stream.ended


STREAM_FAULTS: dict[str, tuple[bytes, ErrorCode]] = {
    "WINDOW_UPDATE by 0": (frames.window_update(1, 0), PROTOCOL),
    "a window that overflows": (frames.window_update(1, 2**31 - 1), FLOW),
    "PRIORITY of 4 bytes": (frame_bytes(frames.PRIORITY, 0, 1, bytes(4)), SIZE),
    "PRIORITY on itself": (frame_bytes(frames.PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL),
    "trailers without END_STREAM": (frame_bytes(frames.HEADERS, END_HEADERS, 1, b""), PROTOCOL),
    "trailers with a pseudo field": (frame_bytes(frames.HEADERS, END_HEADERS | END, 1, b"\x82"), PROTOCOL),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_stream_error_resets_the_stream(client: Client, name: str) -> None:
    [stream] = client.send(client.headers(1))
    sent, code = STREAM_FAULTS[name]
    assert client.send(sent) == [stream]
    assert client.resets == [(1, code)]
    assert stream.closed
    assert client.goaway is None


@pytest.mark.parametrize("late", [data(1, b"x"), frame_bytes(frames.HEADERS, END_HEADERS | END, 1, b"")])
def test_a_frame_after_the_end_of_the_stream_resets_it(client: Client, late: bytes) -> None:
    client.request(1)
    client.send(late)
    assert client.resets == [(1, CLOSED)]


def test_data_after_the_peers_reset_reset_the_stream(client: Client) -> None:
    client.send(client.headers(1) + frames.rst_stream(1, 8) + data(1, b"x"))
    assert client.resets == [(1, CLOSED)]


def test_streams_over_the_limit_are_refused() -> None:
    client = Client(Limits(concurrent_streams=2)).connect()
    first, _ = client.send(client.headers(1) + client.headers(3) + client.headers(5))
    assert client.resets == [(5, ErrorCode.REFUSED_STREAM)]
    first.reset(ErrorCode.CANCEL)
    assert len(client.send(client.headers(7))) == 1

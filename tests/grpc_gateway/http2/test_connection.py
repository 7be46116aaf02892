"""The connection's state machine: what comes in, what goes out, and which rule ends what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.http2 import frames
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Block
from grpc_gateway.http2.limits import Limits
from grpc_gateway.http2.stream import Stream
from tests.grpc_gateway.http2.http2_client import (
    END,
    END_HEADERS,
    PREFACE,
    REQUEST,
    Client,
    Frame,
    data,
    frame_bytes,
    parse,
    settings,
)

HEAD = Block((":status", "200"), ("content-type", "application/grpc"))
TRAILERS = Block(("grpc-status", "0"))
OK = [(":status", "200"), ("content-type", "application/grpc")]


@pytest.fixture
def client() -> Client:
    return Client().connect()


def without(name: str) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in REQUEST if pair[0] != name)


# Requests and answers.


def test_the_preface_of_the_server() -> None:
    client = Client()
    sent = client.collect()
    assert [found.kind for found in sent] == [frames.SETTINGS, frames.WINDOW_UPDATE]
    client.send(PREFACE)
    assert client.received[-1] == Frame(frames.SETTINGS, frames.ACK, 0, b"")


def test_a_unary_call(client: Client) -> None:
    [stream] = client.request(1, b"hello")
    assert (stream.head.method, stream.head.path, stream.head.authority) == ("POST", "/a/B", "x")
    assert stream.head.protocol == {"content-type": "application/grpc", "te": "trailers"}
    assert stream.head.fields == []
    assert (stream.inbox, stream.ended) == ([b"hello"], True)
    stream.send_response(HEAD, b"\0\0\0\0\5", b"world", TRAILERS)
    head, body, trailers = client.collect()
    assert client.decode(head) == OK
    assert (body.kind, body.flags, body.payload) == (frames.DATA, 0, b"\0\0\0\0\5world")
    assert client.decode(trailers) == [("grpc-status", "0")]
    assert trailers.flags == END | END_HEADERS
    assert stream.closed
    assert client.connection.streams == {}


def test_heads_of_equal_blocks_are_one(client: Client) -> None:
    heads = [client.request(number)[0].head for number in (1, 3, 5)]
    assert heads[0] is not heads[1]
    assert heads[1] is heads[2]


def test_answers_are_one_write(client: Client) -> None:
    woken: list[int] = []
    client.connection.sender.wake = lambda: woken.append(1)
    streams = client.send(b"".join(client.headers(number, flags=END) for number in (1, 3, 5)))
    for stream in streams:
        stream.send_response(HEAD, b"\0\0\0\0\0", b"", TRAILERS)
    assert woken == [1]


def test_a_streamed_call(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    assert [stream.ended] == [False]
    assert client.send(data(1, b"a") + data(1, b"b")) == [stream]
    assert stream.inbox == [b"a", b"b"]
    stream.inbox.clear()
    stream.send_headers(HEAD)
    stream.send_data(b"one")
    assert client.send(data(1, b"", END)) == [stream]
    assert stream.ended
    stream.send_data(b"two")
    stream.send_trailers([(b"grpc-status", b"5"), (b"grpc-message", b"no")])
    client.collect()
    assert client.body(1) == b"onetwo"
    assert client.received[-1].flags == END | END_HEADERS


def test_an_early_answer_tells_the_client_to_stop(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    stream.send_headers([(b":status", b"200"), (b"grpc-status", b"12")], end=True)
    client.collect()
    assert client.resets == [(1, ErrorCode.NO_ERROR)]
    assert stream.reset_code is None
    # What was on its way is ignored.
    assert client.send(data(1, b"late") + client.headers(1, ("a", "b"), flags=END)) == []
    assert client.goaway is None
    assert client.resets == [(1, ErrorCode.NO_ERROR)]


def test_trailers_end_a_request(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    assert client.send(client.headers(1, ("checksum", "1"), flags=END)) == [stream]
    assert stream.ended


def test_padding_and_priority_are_read_past(client: Client) -> None:
    block = client.block()
    payload = bytes((3,)) + bytes((0, 0, 0, 0, 15)) + block + bytes(3)
    flags = frames.PADDED | frames.PRIORITY_FIELDS | END_HEADERS
    [stream] = client.send(frame_bytes(frames.HEADERS, flags, 1, payload))
    assert stream.head.path == "/a/B"
    client.send(frame_bytes(frames.DATA, frames.PADDED | END, 1, b"\4body" + bytes(4)))
    assert stream.inbox == [b"body"]


def test_a_block_in_many_frames(client: Client) -> None:
    block = client.block()
    sent = frame_bytes(frames.HEADERS, END, 1, block[:3]) + frame_bytes(frames.CONTINUATION, 0, 1, block[3:5])
    assert client.send(sent) == []
    [stream] = client.send(frame_bytes(frames.CONTINUATION, END_HEADERS, 1, block[5:]))
    assert stream.head.path == "/a/B"
    assert stream.ended


def test_cookies_are_joined(client: Client) -> None:
    [stream] = client.send(client.headers(1, *REQUEST, ("cookie", "a=1"), ("cookie", "b=2")))
    assert stream.head.fields[-1] == ("cookie", "a=1; b=2")


def test_a_large_head_goes_in_continuations(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_headers([(b":status", b"200"), (b"x", b"y" * 40_000)])
    sent = client.collect()
    assert [(found.kind, found.flags) for found in sent] == [(1, 0), (9, 0), (9, END_HEADERS)]
    fields = list(client.decoder.decode(b"".join(found.payload for found in sent)))
    assert len(fields[1][1]) == 40_000


def test_pings_are_answered(client: Client) -> None:
    client.send(frames.ping(b"12345678"))
    assert client.received == [Frame(frames.PING, frames.ACK, 0, b"12345678")]


def test_what_is_unknown_is_ignored(client: Client) -> None:
    client.send(frame_bytes(0xEE, 0xFF, 77, b"?") + frames.settings({0xF0F0: 7}))
    assert client.goaway is None


def test_a_stream_that_was_reset_in_the_same_read_is_over(client: Client) -> None:
    [stream] = client.send(client.headers(1) + frames.rst_stream(1, ErrorCode.CANCEL))
    assert stream.closed
    assert stream.reset_code == ErrorCode.CANCEL
    assert client.connection.streams == {}


# Bytes in any portions.


def conversation() -> bytes:
    client = Client()
    return (
        PREFACE
        + client.headers(1)
        + data(1, b"abc")
        + frames.ping(b"12345678")
        + client.headers(3, flags=END)
        + data(1, b"", END)
        + client.headers(5)
        + frames.window_update(5, 10)
        + frames.rst_stream(5, 8)
        + client.headers(7)
        + client.headers(7, ("a", "b"), flags=END)
    )


def outcome(portions: list[bytes]) -> tuple[object, ...]:
    connection = Connection(0.0)
    seen: dict[int, Stream] = {}
    bodies: dict[int, bytes] = {}
    for portion in portions:
        for stream in connection.receive(portion, 0.0):
            seen[stream.id] = stream
            bodies[stream.id] = bodies.get(stream.id, b"") + b"".join(stream.inbox)
            stream.inbox.clear()
    streams = [(stream.id, stream.head.path, stream.ended, stream.reset_code) for stream in seen.values()]
    return streams, bodies, connection.sender.take(), connection.fault and connection.fault.code


def test_byte_by_byte_is_as_whole() -> None:
    sent = conversation()
    assert outcome([sent]) == outcome([sent[place : place + 1] for place in range(len(sent))])
    assert outcome([sent])[3] is None


@given(st.data())
def test_any_portions_are_as_whole(draw: st.DataObject) -> None:
    sent = conversation()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    portions = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert outcome(portions) == outcome([sent])


@given(st.binary(max_size=400))
def test_garbage_ends_in_goaway_at_most(garbage: bytes) -> None:
    client = Client().connect()
    client.send(garbage)
    assert (client.connection.fault is None) == (client.goaway is None)


FRAMES = st.builds(
    frame_bytes,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF]),
    st.integers(0, 9),
    st.binary(max_size=20) | st.sampled_from([Client().block(), bytes(4), bytes(8), b"\0\0\0\1", b"\x7f\xff\xff\xff"]),
)


@given(st.lists(FRAMES | st.sampled_from([1, 3, 5, 7, 9]), max_size=40))
def test_any_frames_keep_the_invariants(script: list[bytes | int]) -> None:
    client = Client().connect()
    for step in script:
        for stream in client.send(client.headers(step) if isinstance(step, int) else step):
            if stream.ended and not stream.closed:
                stream.send_response(HEAD, b"\0\0\0\0\1", b"x", TRAILERS)
    connection = client.connection
    client.collect()
    assert all(not stream.closed for stream in connection.streams.values())
    assert connection.sender.waiting == sum(stream.waiting for stream in connection.streams.values())
    assert (connection.fault is None) == (client.goaway is None)


def test_nothing_is_taken_after_the_end(client: Client) -> None:
    client.send(b"\xff" * 9)
    sent = len(client.received)
    assert client.request(1) == []
    assert len(client.received) == sent


# What ends a connection. (`h2spec` walks these, too; here the codes are exact.)

PROTOCOL, SIZE, CLOSED = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.STREAM_CLOSED
FLOW, COMPRESSION, CALM = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM
CONNECTION_FAULTS: dict[str, tuple[bytes, ErrorCode]] = {
    "a frame that is too large": (frame_bytes(frames.DATA, 0, 1, bytes(16_385)), SIZE),
    "DATA on stream 0": (data(0, b"x"), PROTOCOL),
    "DATA on an idle stream": (data(1, b"x"), PROTOCOL),
    "DATA on an even stream": (data(2, b"x"), PROTOCOL),
    "HEADERS on stream 0": (frame_bytes(frames.HEADERS, END_HEADERS, 0, b"\x82"), PROTOCOL),
    "HEADERS on an even stream": (frame_bytes(frames.HEADERS, END_HEADERS, 2, b"\x82"), PROTOCOL),
    "HEADERS padded too far": (frame_bytes(frames.HEADERS, END_HEADERS | frames.PADDED, 1, b"\x05\x82"), PROTOCOL),
    "HEADERS without room for their priority": (frame_bytes(frames.HEADERS, END_HEADERS | 0x20, 1, b"\x82"), SIZE),
    "HEADERS that depend on themselves": (frame_bytes(frames.HEADERS, END_HEADERS | 0x20, 1, b"\0\0\0\1\0"), PROTOCOL),
    "a broken block": (frame_bytes(frames.HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION),
    "an interrupted block": (frame_bytes(frames.HEADERS, 0, 1, b"\x82") + frames.ping(bytes(8)), PROTOCOL),
    "a block that goes on elsewhere": (
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
def test_faults_of_connections(client: Client, name: str) -> None:
    sent, code = CONNECTION_FAULTS[name]
    client.send(sent)
    assert client.goaway is not None
    assert client.goaway[1] is code
    assert client.connection.closed


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", frames.PREFACE + frames.ping(bytes(8))]
)
def test_faults_of_the_preface(start: bytes) -> None:
    client = Client()
    client.send(start)
    assert client.goaway is not None
    assert client.goaway[1] is PROTOCOL


def test_streams_are_numbered_upwards(client: Client) -> None:
    client.request(5)
    client.send(client.headers(3))
    assert client.goaway is not None
    assert client.goaway[:2] == (5, PROTOCOL)


def test_headers_on_a_closed_stream(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"", TRAILERS)
    client.send(client.headers(1))
    assert client.goaway is not None
    assert client.goaway[1] is CLOSED


# What ends a stream.

MALFORMED: dict[str, tuple[tuple[str, str], ...]] = {
    "upper case": (*REQUEST, ("Upper", "x")),
    "no name": (*REQUEST, ("", "x")),
    "a space in a name": (*REQUEST, ("a b", "x")),
    "a line feed in a value": (*REQUEST, ("a", "x\ny")),
    "NUL in a value": (*REQUEST, ("a", "x\0y")),
    "a space before a value": (*REQUEST, ("a", " x")),
    "a tab behind a value": (*REQUEST, ("a", "x\t")),
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
    "a pseudo field of answers": ((":status", "200"), *REQUEST),
    "a pseudo field behind others": (*without(":path"), (":path", "/")),
    "CONNECT with a path": ((":method", "CONNECT"), (":authority", "x"), (":path", "/")),
    "a content-length that is no number": (*REQUEST, ("content-length", "+1")),
    "two content-lengths": (*REQUEST, ("content-length", "1"), ("content-length", "2")),
    "another host": (*REQUEST, ("host", "y")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests(client: Client, name: str) -> None:
    assert client.send(client.headers(1, *MALFORMED[name])) == []
    assert client.resets == [(1, PROTOCOL)]
    # The connection goes on, its tables are right.
    assert client.request(3)[0].head.path == "/a/B"
    assert client.goaway is None


@pytest.mark.parametrize(("length", "body"), [("5", b"four"), ("3", b"four"), ("1", b"")])
def test_content_length_that_is_wrong(client: Client, length: str, body: bytes) -> None:
    client.send(client.headers(1, *REQUEST, ("content-length", length)) + data(1, body, END))
    assert client.resets == [(1, PROTOCOL)]


def test_content_length_of_nothing(client: Client) -> None:
    client.send(client.headers(1, *REQUEST, ("content-length", "7"), flags=END))
    assert client.resets == [(1, PROTOCOL)]


def test_content_length_that_is_right(client: Client) -> None:
    [stream] = client.send(client.headers(1, *REQUEST, ("content-length", "4")) + data(1, b"four", END))
    assert stream.ended


STREAM_FAULTS: dict[str, tuple[bytes, ErrorCode]] = {
    "WINDOW_UPDATE by 0": (frames.window_update(1, 0), PROTOCOL),
    "a window that overflows": (frames.window_update(1, 2**31 - 1), FLOW),
    "PRIORITY of 4 bytes": (frame_bytes(frames.PRIORITY, 0, 1, bytes(4)), SIZE),
    "PRIORITY on itself": (frame_bytes(frames.PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL),
    "trailers that end nothing": (frame_bytes(frames.HEADERS, END_HEADERS, 1, b""), PROTOCOL),
    "trailers with a pseudo field": (frame_bytes(frames.HEADERS, END_HEADERS | END, 1, b"\x82"), PROTOCOL),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_faults_of_streams(client: Client, name: str) -> None:
    [stream] = client.send(client.headers(1))
    sent, code = STREAM_FAULTS[name]
    assert client.send(sent) == [stream]
    assert client.resets == [(1, code)]
    assert stream.closed
    assert stream.reset_code == code
    assert client.goaway is None


@pytest.mark.parametrize("late", [data(1, b"x"), frame_bytes(frames.HEADERS, END_HEADERS | END, 1, b"")])
def test_frames_behind_the_end(client: Client, late: bytes) -> None:
    client.request(1)
    client.send(late)
    assert client.resets == [(1, CLOSED)]


def test_data_behind_a_reset(client: Client) -> None:
    client.send(client.headers(1) + frames.rst_stream(1, 8) + data(1, b"x"))
    assert client.resets == [(1, CLOSED)]


def test_too_many_streams() -> None:
    client = Client(Limits(concurrent_streams=2)).connect()
    first, _ = client.send(client.headers(1) + client.headers(3) + client.headers(5))
    assert client.resets == [(5, ErrorCode.REFUSED_STREAM)]
    first.reset(ErrorCode.CANCEL)
    assert len(client.send(client.headers(7))) == 1


# Flow control: what we may send.


def test_an_answer_waits_for_the_windows(client: Client) -> None:
    client.send(settings(initial_window_size=10))
    [stream] = client.request(1)
    stream.send_response(HEAD, b"\0\0\0\0\x14", b"x" * 20, TRAILERS)
    client.collect()
    assert len(client.body(1)) == 10
    assert client.connection.sender.waiting == stream.waiting == 15
    assert client.send(frames.window_update(1, 5)) == [stream]
    assert len(client.body(1)) == 15
    client.send(settings(initial_window_size=11))
    assert len(client.body(1)) == 16
    client.send(frames.window_update(1, 100))
    assert client.body(1) == b"\0\0\0\0\x14" + b"x" * 20
    assert client.received[-1].flags == END | END_HEADERS
    assert client.connection.sender.waiting == 0
    assert client.connection.streams == {}


def test_a_window_below_zero(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_headers(HEAD)
    stream.send_data(b"x" * 1000)
    client.send(settings(initial_window_size=500))
    stream.send_data(b"y" * 10)
    client.send(frames.window_update(1, 500 - 10))
    assert len(client.body(1)) == 1000
    client.send(frames.window_update(1, 15))
    assert len(client.body(1)) == 1005


def test_the_window_of_the_connection_is_shared_fairly(client: Client) -> None:
    client.send(settings(initial_window_size=1_000_000))
    [greedy] = client.request(1)
    greedy.send_headers(HEAD)
    greedy.send_data(b"x" * 500_000)
    [modest] = client.request(3)
    modest.send_response(HEAD, b"", b"y" * 100, TRAILERS)
    client.collect()
    assert (len(client.body(1)), client.body(3)) == (65_535, b"")
    client.send(frames.window_update(0, 20_000))
    assert client.body(3) == b"y" * 100
    client.send(frames.window_update(0, 1_000_000))
    assert len(client.body(1)) == 500_000


def test_frames_are_as_large_as_the_peer_allows(client: Client) -> None:
    client.send(settings(initial_window_size=1_000_000, max_frame_size=20_000) + frames.window_update(0, 1_000_000))
    [stream] = client.request(1)
    stream.send_headers(HEAD)
    stream.send_data(b"x" * 50_000, end=True)
    client.collect()
    assert [(len(found.payload), found.flags) for found in client.received_of(frames.DATA)] == [
        (20_000, 0),
        (20_000, 0),
        (10_000, END),
    ]


def test_a_reset_drops_what_waits(client: Client) -> None:
    client.send(settings(initial_window_size=0))
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"x" * 1000, TRAILERS)
    assert client.connection.sender.waiting == 1000
    assert client.send(frames.rst_stream(1, 8)) == [stream]
    assert client.connection.sender.waiting == 0
    client.send(frames.window_update(0, 1000))
    assert client.body(1) == b""


# Flow control: what the peer may send.


def test_windows_are_given_back_as_data_are_consumed() -> None:
    client = Client(Limits(stream_window=1000, connection_window=100_000)).connect()
    [stream] = client.send(client.headers(1))
    client.send(data(1, b"x" * 600))
    assert client.received_of(frames.WINDOW_UPDATE) == []
    stream.consume(600)
    [update] = client.collect()
    assert (update.stream_id, int.from_bytes(update.payload)) == (1, 600)
    client.send(data(1, b"x" * 1000))
    assert client.resets == []
    client.send(data(1, b"x"))
    assert client.resets == [(1, FLOW)]


def test_the_window_of_the_connection_is_given_back_by_closed_streams() -> None:
    client = Client(Limits(stream_window=1 << 20, connection_window=100_000)).connect()
    for number in range(1, 400, 2):
        [stream] = client.send(client.headers(number))
        client.send(data(number, b"x" * 10_000))
        if number % 4 == 1:
            stream.reset(ErrorCode.CANCEL)
        else:
            client.now += 10
            client.send(frames.rst_stream(number, 8))
        client.collect()
    assert client.goaway is None


def test_the_window_of_the_connection_is_enforced() -> None:
    client = Client(Limits(stream_window=1 << 20, connection_window=100_000)).connect()
    client.send(client.headers(1) + data(1, bytes(16_000)) * 6 + data(1, bytes(5000)))
    assert client.goaway is not None
    assert client.goaway[1] is FLOW


# The end.


def test_draining(client: Client) -> None:
    [stream] = client.request(1)
    client.connection.drain()
    goaway, ping = client.collect()
    assert client.goaway == (2**31 - 1, ErrorCode.NO_ERROR, b"")
    # A request that was on its way is served.
    [late] = client.request(3)
    client.send(frames.ping(ping.payload, ack=True))
    assert client.goaway == (3, ErrorCode.NO_ERROR, b"")
    assert client.request(5) == []
    assert client.resets == []
    assert [client.connection.drained] == [False]
    for each in (stream, late):
        each.send_response(HEAD, b"", b"", TRAILERS)
    assert client.connection.drained
    assert goaway.kind == frames.GOAWAY


def test_numbers_run_out(client: Client) -> None:
    client.send(client.headers(2**31 - 1))
    assert client.goaway == (2**31 - 1, ErrorCode.NO_ERROR, b"")
    assert 2**31 - 1 in client.connection.streams


def test_a_lost_connection_ends_its_streams(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    assert client.connection.lost() == [stream]
    assert stream.closed
    assert client.connection.lost() == []
    stream.send_response(HEAD, b"", b"", TRAILERS)
    assert client.collect() == []


def test_keepalive(client: Client) -> None:
    client.connection.ping()
    [ping] = client.collect()
    assert [client.connection.pinged_at] == [0.0]
    client.connection.ping()
    assert client.collect() == []
    client.send(frames.ping(ping.payload, ack=True))
    assert client.connection.pinged_at is None
    assert parse(client.connection.sender.take()) == []


def test_what_crosses_the_last_goaway_is_nobodys_fault(client: Client) -> None:
    """RFC 9113 section 6.8: it is ignored, whatever it is and however much."""
    client.request(1)
    client.connection.drain()
    client.connection.finish_draining()
    for number in range(3, 603, 2):
        client.send(client.headers(number) + data(number, b"x") + frames.window_update(number, 1))
        client.send(client.headers(number, ("a", "b"), flags=END) + frames.rst_stream(number, 8))
    assert client.resets == []
    assert client.goaway == (1, ErrorCode.NO_ERROR, b"")
    # What they held of the connection's window is given back.
    assert list(client.connection.streams) == [1]


def test_a_goaway_never_names_more_than_the_one_before(client: Client) -> None:
    """RFC 9113 section 6.8."""
    client.request(1)
    client.connection.drain()
    client.connection.finish_draining()
    client.send(client.headers(3))
    client.send(b"\xff" * 30)
    assert [int.from_bytes(found.payload[:4]) for found in client.received_of(frames.GOAWAY)] == [2**31 - 1, 1, 1]

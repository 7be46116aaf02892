"""Requests, responses and fragmented input of an HTTP/2 connection."""

from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.http2 import frames
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.stream import Stream
from tests.grpc_gateway.http2.http2_client import (
    END,
    END_HEADERS,
    HEAD,
    PREFACE,
    REQUEST,
    TRAILERS,
    Client,
    Frame,
    data,
    frame_bytes,
)

OK = [(":status", "200"), ("content-type", "application/grpc")]


def test_server_preface_precedes_the_clients() -> None:
    client = Client()
    sent = client.collect()
    assert [frame.kind for frame in sent] == [frames.SETTINGS, frames.WINDOW_UPDATE]
    client.send(PREFACE)
    assert client.received[-1] == Frame(frames.SETTINGS, frames.ACK, 0, b"")


def test_a_unary_call_is_read_and_answered(client: Client) -> None:
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


def test_equal_header_blocks_share_a_head(client: Client) -> None:
    heads = [client.request(number)[0].head for number in (1, 3, 5)]
    assert heads[0] is not heads[1]
    assert heads[1] is heads[2]


def test_responses_to_one_read_wake_once(client: Client) -> None:
    wakeups: list[int] = []
    client.connection.sender.wake = lambda: wakeups.append(1)
    streams = client.send(b"".join(client.headers(number, flags=END) for number in (1, 3, 5)))
    for stream in streams:
        stream.send_response(HEAD, b"\0\0\0\0\0", b"", TRAILERS)
    assert wakeups == [1]


def test_messages_of_a_stream_pass_both_ways_before_its_end(client: Client) -> None:
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


def test_an_early_response_resets_the_stream_without_error(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    stream.send_headers([(b":status", b"200"), (b"grpc-status", b"12")], end=True)
    client.collect()
    assert client.resets == [(1, ErrorCode.NO_ERROR)]
    # Frames that were in flight are ignored.
    assert client.send(data(1, b"late") + client.headers(1, ("a", "b"), flags=END)) == []
    assert client.goaway is None
    assert client.resets == [(1, ErrorCode.NO_ERROR)]


def test_trailers_end_a_request(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    assert client.send(client.headers(1, ("checksum", "1"), flags=END)) == [stream]
    assert stream.ended


def test_padding_and_priority_are_ignored(client: Client) -> None:
    block = client.block()
    payload = bytes((3,)) + bytes((0, 0, 0, 0, 15)) + block + bytes(3)
    flags = frames.PADDED | frames.PRIORITY_FIELDS | END_HEADERS
    [stream] = client.send(frame_bytes(frames.HEADERS, flags, 1, payload))
    assert stream.head.path == "/a/B"
    client.send(frame_bytes(frames.DATA, frames.PADDED | END, 1, b"\4body" + bytes(4)))
    assert stream.inbox == [b"body"]


def test_continuation_frames_are_joined(client: Client) -> None:
    block = client.block()
    sent = frame_bytes(frames.HEADERS, END, 1, block[:3]) + frame_bytes(frames.CONTINUATION, 0, 1, block[3:5])
    assert client.send(sent) == []
    [stream] = client.send(frame_bytes(frames.CONTINUATION, END_HEADERS, 1, block[5:]))
    assert stream.head.path == "/a/B"
    assert stream.ended


def test_cookies_are_joined(client: Client) -> None:
    [stream] = client.send(client.headers(1, *REQUEST, ("cookie", "a=1"), ("cookie", "b=2")))
    assert stream.head.fields[-1] == ("cookie", "a=1; b=2")


def test_a_large_response_head_is_sent_in_continuation_frames(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_headers([(b":status", b"200"), (b"x", b"y" * 40_000)])
    sent = client.collect()
    assert [(frame.kind, frame.flags) for frame in sent] == [(1, 0), (9, 0), (9, END_HEADERS)]
    fields = list(client.decoder.decode(b"".join(frame.payload for frame in sent)))
    assert len(fields[1][1]) == 40_000


def test_pings_are_answered(client: Client) -> None:
    client.send(frames.ping(b"12345678"))
    assert client.received == [Frame(frames.PING, frames.ACK, 0, b"12345678")]


def test_unknown_frames_and_settings_are_ignored(client: Client) -> None:
    client.send(frame_bytes(0xEE, 0xFF, 77, b"?") + frames.settings({0xF0F0: 7}))
    assert client.goaway is None


def test_a_stream_reset_in_the_same_read_is_closed(client: Client) -> None:
    [stream] = client.send(client.headers(1) + frames.rst_stream(1, ErrorCode.CANCEL))
    assert stream.closed
    assert client.connection.streams == {}


# Fragmented input.


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


def outcome(fragments: list[bytes]) -> tuple[object, ...]:
    connection = Connection(0.0)
    changed: dict[int, Stream] = {}
    bodies: dict[int, bytes] = {}
    for fragment in fragments:
        for stream in connection.receive(fragment, 0.0):
            changed[stream.id] = stream
            bodies[stream.id] = bodies.get(stream.id, b"") + b"".join(stream.inbox)
            stream.inbox.clear()
    streams = [(stream.id, stream.head.path, stream.ended, stream.closed) for stream in changed.values()]
    return streams, bodies, connection.sender.take(), connection.fault and connection.fault.code


def test_single_bytes_give_the_same_outcome() -> None:
    sent = conversation()
    assert outcome([sent]) == outcome([sent[place : place + 1] for place in range(len(sent))])
    assert outcome([sent])[3] is None


@given(st.data())
def test_any_fragments_give_the_same_outcome(draw: st.DataObject) -> None:
    sent = conversation()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(sent)), max_size=10)))
    fragments = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert outcome(fragments) == outcome([sent])


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_handled_or_end_with_goaway(arbitrary: bytes) -> None:
    client = Client().connect()
    client.send(arbitrary)
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


def test_frames_after_the_end_are_ignored(client: Client) -> None:
    client.send(b"\xff" * 9)
    sent = len(client.received)
    assert client.request(1) == []
    assert len(client.received) == sent

"""Flow control in both directions."""

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.limits import Limits
from tests.grpc_gateway.http2.http2_client import END, END_HEADERS, HEAD, TRAILERS, Client, data, settings


def test_a_response_waits_for_the_windows(client: Client) -> None:
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


def test_settings_may_make_a_window_negative(client: Client) -> None:
    [stream] = client.request(1)
    stream.send_headers(HEAD)
    stream.send_data(b"x" * 1000)
    client.send(settings(initial_window_size=500))
    stream.send_data(b"y" * 10)
    client.send(frames.window_update(1, 500 - 10))
    assert len(client.body(1)) == 1000
    client.send(frames.window_update(1, 15))
    assert len(client.body(1)) == 1005


def test_streams_share_the_connections_window(client: Client) -> None:
    client.send(settings(initial_window_size=1_000_000))
    [large] = client.request(1)
    large.send_headers(HEAD)
    large.send_data(b"x" * 500_000)
    [small] = client.request(3)
    small.send_response(HEAD, b"", b"y" * 100, TRAILERS)
    client.collect()
    assert (len(client.body(1)), client.body(3)) == (65_535, b"")
    client.send(frames.window_update(0, 20_000))
    assert client.body(3) == b"y" * 100
    client.send(frames.window_update(0, 1_000_000))
    assert len(client.body(1)) == 500_000


def test_frames_have_the_size_that_the_peer_allows(client: Client) -> None:
    client.send(settings(initial_window_size=1_000_000, max_frame_size=20_000) + frames.window_update(0, 1_000_000))
    [stream] = client.request(1)
    stream.send_headers(HEAD)
    stream.send_data(b"x" * 50_000, end=True)
    client.collect()
    assert [(len(frame.payload), frame.flags) for frame in client.received_of(frames.DATA)] == [
        (20_000, 0),
        (20_000, 0),
        (10_000, END),
    ]


def test_a_reset_discards_waiting_data(client: Client) -> None:
    client.send(settings(initial_window_size=0))
    [stream] = client.request(1)
    stream.send_response(HEAD, b"", b"x" * 1000, TRAILERS)
    assert client.connection.sender.waiting == 1000
    assert client.send(frames.rst_stream(1, 8)) == [stream]
    assert client.connection.sender.waiting == 0
    client.send(frames.window_update(0, 1000))
    assert client.body(1) == b""


# Flow control of requests.


def test_consumed_data_widen_the_window() -> None:
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
    assert client.resets == [(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_closed_streams_return_their_data_to_the_connections_window() -> None:
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


def test_data_over_the_connections_window_end_the_connection() -> None:
    client = Client(Limits(stream_window=1 << 20, connection_window=100_000)).connect()
    client.send(client.headers(1) + data(1, bytes(16_000)) * 6 + data(1, bytes(5000)))
    assert client.goaway is not None
    assert client.goaway[1] is ErrorCode.FLOW_CONTROL_ERROR

"""Drain, keepalive and the loss of a connection."""

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from tests.grpc_gateway.http2.http2_client import END, HEAD, TRAILERS, Client, data, parse


def test_drain_serves_requests_in_flight(client: Client) -> None:
    [stream] = client.request(1)
    client.connection.drain()
    goaway, ping = client.collect()
    assert client.goaway == (2**31 - 1, ErrorCode.NO_ERROR, b"")
    # A request in flight is served.
    [late] = client.request(3)
    client.send(frames.ping(ping.payload, ack=True))
    assert client.goaway == (3, ErrorCode.NO_ERROR, b"")
    assert client.request(5) == []
    assert client.resets == []
    assert [client.connection.drained] == [False]
    for open_stream in (stream, late):
        open_stream.send_response(HEAD, b"", b"", TRAILERS)
    assert client.connection.drained
    assert goaway.kind == frames.GOAWAY


def test_drain_begins_when_stream_identifiers_run_out(client: Client) -> None:
    client.send(client.headers(2**31 - 1))
    assert client.goaway == (2**31 - 1, ErrorCode.NO_ERROR, b"")
    assert 2**31 - 1 in client.connection.streams


def test_a_lost_connection_closes_its_streams(client: Client) -> None:
    [stream] = client.send(client.headers(1))
    assert client.connection.lost() == [stream]
    assert stream.closed
    assert client.connection.lost() == []
    stream.send_response(HEAD, b"", b"", TRAILERS)
    assert client.collect() == []


def test_a_keepalive_ping_is_pending_until_any_read(client: Client) -> None:
    client.connection.ping()
    [ping] = client.collect()
    assert [client.connection.pinged_at] == [0.0]
    client.connection.ping()
    assert client.collect() == []
    client.send(frames.ping(ping.payload, ack=True))
    assert client.connection.pinged_at is None
    assert parse(client.connection.sender.take()) == []


def test_frames_after_the_final_goaway_are_ignored(client: Client) -> None:
    """RFC 9113 section 6.8: frames of any type and number for streams that the GOAWAY excludes."""
    client.request(1)
    client.connection.drain()
    client.connection.finish_draining()
    for number in range(3, 603, 2):
        client.send(client.headers(number) + data(number, b"x") + frames.window_update(number, 1))
        client.send(client.headers(number, ("a", "b"), flags=END) + frames.rst_stream(number, 8))
    assert client.resets == []
    assert client.goaway == (1, ErrorCode.NO_ERROR, b"")
    assert list(client.connection.streams) == [1]


def test_a_later_goaway_does_not_raise_the_last_stream(client: Client) -> None:
    """RFC 9113 section 6.8."""
    client.request(1)
    client.connection.drain()
    client.connection.finish_draining()
    client.send(client.headers(3))
    client.send(b"\xff" * 30)
    assert [int.from_bytes(frame.payload[:4]) for frame in client.received_of(frames.GOAWAY)] == [2**31 - 1, 1, 1]

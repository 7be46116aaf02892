"""Connections that are opened and misused."""

import socket
import time

import pytest

from tests.attacks.attack_limits import EMPTY_CALL, MIB, within_limits
from tests.attacks.raw_client import HOST, PREFACE, Client, Code, Kind, data, frame
from tests.conformance.server_process import Server


@pytest.mark.parametrize("size", [7, 20, 24], ids=["negotiation", "preface", "no SETTINGS"])
def test_many_partial_prefaces_take_little_memory(server: Server, size: int) -> None:
    """500 connections that stop in the negotiation, within the preface, or before SETTINGS."""
    sockets = []
    try:
        with within_limits(server, growth=24 * MIB):
            for _ in range(500):
                sockets.append(socket.create_connection((HOST, server.plain)))
                sockets[-1].sendall(PREFACE[:size])
            time.sleep(0.5)
    finally:
        for connection in sockets:
            connection.close()


def test_a_reused_stream_identifier_ends_the_connection(server: Server, client: Client) -> None:
    """RFC 9113 section 5.1: HEADERS on a stream that is closed are an error of the connection."""
    with within_limits(server):
        client.send(client.call(1, EMPTY_CALL, b""))
        assert client.response(1).grpc_status == 0
        client.send(client.call(1, EMPTY_CALL, b""))
        assert client.goaway_code() in (Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)


@pytest.mark.parametrize("stream", [2, 3], ids=["even", "lower"])
def test_an_even_or_lower_stream_identifier_is_a_protocol_error(server: Server, client: Client, stream: int) -> None:
    """Section 5.1.1: identifiers of a client's streams are odd and increase."""
    with within_limits(server):
        client.send(client.call(5, EMPTY_CALL, b""))
        assert client.response(5).grpc_status == 0
        client.send(client.call(stream, EMPTY_CALL, b""))
        assert client.goaway_code() == Code.PROTOCOL_ERROR


def test_a_frame_over_the_maximum_size_is_refused_at_its_header(server: Server, client: Client) -> None:
    """Section 4.2. The server does not wait for the payload."""
    with within_limits(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)))
        client.send(b"\xff\xff\xff" + frame(Kind.DATA, 0, 1)[3:])
        assert client.goaway_code() == Code.FRAME_SIZE_ERROR


def test_data_after_a_reset_are_discarded(server: Server, client: Client) -> None:
    """Section 5.1: frames in flight when the server resets a stream are discarded, but count against the connection's
    window, which 400 streams of 60 KB exceed."""
    streams = range(1, 800, 2)
    with within_limits(server):
        for stream in streams:
            client.send(client.headers(stream, client.request("/no.such/Method")))
            client.upload(stream, bytes(60_000))
        for stream in streams:
            assert client.response(stream).grpc_status == 12


def test_arbitrary_bytes_after_the_preface_are_a_protocol_error(server: Server) -> None:
    """Section 3.4: the first frame must be SETTINGS."""
    with Client(server.plain, preface=False) as client, within_limits(server):
        client.send(PREFACE + data(1, b"\xff" * 100) * 100)
        assert client.goaway_code() == Code.PROTOCOL_ERROR

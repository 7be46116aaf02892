"""Connections that are opened and not used as they should be."""

import socket
import time

import pytest

from tests.attacks.raw import HOST, PREFACE, Client, Code, Kind, data, frame
from tests.attacks.siege import EMPTY_CALL, MIB, siege
from tests.conformance.process import Server


@pytest.mark.parametrize("size", [7, 20, 24], ids=["negotiation", "preface", "no SETTINGS"])
def test_half_a_preface(server: Server, size: int) -> None:
    """500 connections that stop in the middle: in the negotiation, in the preface, before SETTINGS."""
    ends = []
    try:
        with siege(server, growth=24 * MIB):
            for _ in range(500):
                ends.append(socket.create_connection((HOST, server.plain)))
                ends[-1].sendall(PREFACE[:size])
            time.sleep(0.5)
    finally:
        for end in ends:
            end.close()


def test_a_stream_number_is_used_once(server: Server, client: Client) -> None:
    """RFC 9113 section 5.1: HEADERS on a stream that is closed are an error of the connection."""
    with siege(server):
        client.send(client.call(1, EMPTY_CALL, b""))
        assert client.answer(1).grpc_status == 0
        client.send(client.call(1, EMPTY_CALL, b""))
        assert client.fate() in (Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)


@pytest.mark.parametrize("stream", [2, 3], ids=["even", "lower"])
def test_a_stream_number_that_is_not_next(server: Server, client: Client, stream: int) -> None:
    """Section 5.1.1: a client's streams are odd, and each is higher than the one before."""
    with siege(server):
        client.send(client.call(5, EMPTY_CALL, b""))
        assert client.answer(5).grpc_status == 0
        client.send(client.call(stream, EMPTY_CALL, b""))
        assert client.fate() == Code.PROTOCOL_ERROR


def test_a_frame_that_is_too_large(server: Server, client: Client) -> None:
    """Section 4.2: refused by its header; the rest is not waited for."""
    with siege(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)))
        client.send(b"\xff\xff\xff" + frame(Kind.DATA, 0, 1)[3:])
        assert client.fate() == Code.FRAME_SIZE_ERROR


def test_data_after_a_reset_is_not_kept(server: Server, client: Client) -> None:
    """Section 5.1: what was on its way when the server ended a stream is thrown away, and still counts for the
    connection's window: 400 streams of 60 KB are more than it holds."""
    streams = range(1, 800, 2)
    with siege(server):
        for stream in streams:
            client.send(client.headers(stream, client.request("/no.such/Method")))
            client.upload(stream, bytes(60_000))
        for stream in streams:
            assert client.answer(stream).grpc_status == 12


def test_garbage_after_the_preface(server: Server) -> None:
    """Section 3.4: the first frame must be SETTINGS."""
    with Client(server.plain, preface=False) as client, siege(server):
        client.send(PREFACE + data(1, b"\xff" * 100) * 100)
        assert client.fate() == Code.PROTOCOL_ERROR

"""Attacks by flow control (RFC 9113 sections 5.2, 6.9 and 10.5)."""

import ssl
import time

import pytest

from tests.attacks.attack_limits import MIB, within_limits
from tests.attacks.raw_client import Client, Code, Setting, data, message, settings, window_update
from tests.conformance.protos.grpc.testing.messages_pb2 import (
    Payload,
    ResponseParameters,
    SimpleRequest,
    StreamingInputCallRequest,
    StreamingInputCallResponse,
    StreamingOutputCallRequest,
)
from tests.conformance.server_process import SERVER_NAME, Server

_UNARY = "/grpc.testing.TestService/UnaryCall"
_DUPLEX = "/grpc.testing.TestService/FullDuplexCall"
_INPUT = "/grpc.testing.TestService/StreamingInputCall"
_OUTPUT = "/grpc.testing.TestService/StreamingOutputCall"
_MAX_WINDOW = (1 << 31) - 1
# 64 MiB in messages of 64 KiB.
_LARGE_OUTPUT = StreamingOutputCallRequest(
    response_parameters=[ResponseParameters(size=65_536)] * 1024
).SerializeToString()


def test_an_overflow_of_the_connections_window_ends_the_connection(server: Server, client: Client) -> None:
    """Section 6.9.1: a window over 2^31-1 is a FLOW_CONTROL_ERROR, of the connection or of the stream."""
    with within_limits(server):
        client.send(window_update(0, _MAX_WINDOW))
        assert client.goaway_code() == Code.FLOW_CONTROL_ERROR


def test_an_overflow_of_a_streams_window_resets_the_stream(server: Server, client: Client) -> None:
    with within_limits(server):
        client.send(client.headers(1, client.request(_DUPLEX)) + window_update(1, _MAX_WINDOW))
        assert client.response(1).reset == Code.FLOW_CONTROL_ERROR
    assert client.goaway is None


def test_an_initial_window_over_the_maximum_ends_the_connection(server: Server, client: Client) -> None:
    """Section 6.5.2."""
    with within_limits(server):
        client.send(settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}))
        assert client.goaway_code() == Code.FLOW_CONTROL_ERROR


def test_an_initial_window_that_overflows_a_stream_ends_the_connection(server: Server) -> None:
    """Section 6.9.2: the difference applies to open streams; an overflow is an error of the connection."""
    with Client(server.plain, window=1000) as client, within_limits(server):
        client.send(client.headers(1, client.request(_DUPLEX)) + window_update(1, _MAX_WINDOW - 1000))
        client.send(settings({Setting.INITIAL_WINDOW_SIZE: 1001}))
        assert client.goaway_code() == Code.FLOW_CONTROL_ERROR


def test_data_over_the_window_are_a_flow_control_error(server: Server, client: Client) -> None:
    """Section 6.9.1. The servicer does not read before the error, so the server has to buffer the data."""
    wait = StreamingOutputCallRequest(response_parameters=[ResponseParameters(size=1, interval_us=60_000_000)])
    flood = message(StreamingOutputCallRequest(payload=Payload(body=bytes(15_000))).SerializeToString())
    octets = client.headers(1, client.request(_DUPLEX)) + data(1, message(wait.SerializeToString()))
    octets += data(1, flood) * 4000
    with within_limits(server, growth=32 * MIB):
        client.blast(octets)
        client.until(lambda client: client.goaway or (1 in client.responses and client.responses[1].reset is not None))
    code = client.goaway.code if client.goaway else client.responses[1].reset
    assert code == Code.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("window", [0, _MAX_WINDOW], ids=["window of 0", "unread socket"])
def test_a_slow_reader_blocks_its_writers(server: Server, window: int) -> None:
    """100 streams request 6.4 GB: the servicers wait, whether the windows or the socket are full."""
    with Client(server.plain, window=window, receive_buffer=8192) as client, within_limits(server, growth=48 * MIB):
        for stream in range(1, 200, 2):
            client.send(client.call(stream, _OUTPUT, _LARGE_OUTPUT))
        time.sleep(1.0)


def test_unread_unary_responses_are_limited(server: Server) -> None:
    """Unary responses are buffered whole: 512 of 1 MiB stay within the connection's limit."""
    request = SimpleRequest(response_size=MIB).SerializeToString()
    with Client(server.plain, window=0) as client, within_limits(server, growth=160 * MIB):
        for stream in range(1, 1024, 2):
            client.send(client.call(stream, _UNARY, request))
        time.sleep(1.0)


def test_window_updates_of_one_byte_take_little_memory(server: Server) -> None:
    """CVE-2019-9511, "Data Dribble": each WINDOW_UPDATE admits one byte."""
    with Client(server.plain, window=0) as client, within_limits(server):
        client.send(client.call(1, _OUTPUT, _LARGE_OUTPUT))
        client.blast(window_update(1, 1) * 10_000, 2.0)


def test_requests_of_single_bytes_are_served(server: Server, client: Client) -> None:
    """Each frame has one byte of a message, on 100 streams."""
    body = message(StreamingInputCallRequest(payload=Payload(body=bytes(20))).SerializeToString())
    streams = range(1, 200, 2)
    with within_limits(server):
        client.send(b"".join(client.headers(stream, client.request(_INPUT)) for stream in streams))
        for position in range(len(body)):
            last = position == len(body) - 1
            piece = body[position : position + 1]
            client.send(b"".join(data(stream, piece, end=last) for stream in streams))
        for stream in streams:
            [(_, response)] = client.response(stream).messages
            assert StreamingInputCallResponse.FromString(response).aggregated_payload_size == 20


def test_a_slow_reader_over_tls_blocks_its_writers(server: Server) -> None:
    """Neither the buffer of plaintext nor that of encrypted records grows."""
    context = ssl.create_default_context(cafile=server.authority)
    context.set_alpn_protocols(["h2"])
    with (
        Client(server.tls, context=context, server_name=SERVER_NAME, receive_buffer=8192) as client,
        within_limits(server, growth=48 * MIB),
    ):
        for stream in range(1, 200, 2):
            client.send(client.call(stream, _OUTPUT, _LARGE_OUTPUT))
        time.sleep(1.0)


def test_a_client_that_half_closes_leaves_no_memory(server: Server) -> None:
    """The responses to a client that has closed its sending side are not buffered."""
    with within_limits(server, growth=48 * MIB):
        for _ in range(20):
            with Client(server.plain, receive_buffer=8192) as client:
                for stream in range(1, 20, 2):
                    client.send(client.call(stream, _OUTPUT, _LARGE_OUTPUT))
                client.close_sending()
                time.sleep(0.05)

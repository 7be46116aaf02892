"""Flow control, used against the server (RFC 9113 sections 5.2, 6.9 and 10.5)."""

import ssl
import time

import pytest

from tests.attacks.raw import Client, Code, Setting, data, message, settings, window_update
from tests.attacks.siege import MIB, siege
from tests.conformance.process import SERVER_NAME, Server
from tests.conformance.protos.grpc.testing.messages_pb2 import (
    Payload,
    ResponseParameters,
    SimpleRequest,
    StreamingInputCallRequest,
    StreamingInputCallResponse,
    StreamingOutputCallRequest,
)

_UNARY = "/grpc.testing.TestService/UnaryCall"
_DUPLEX = "/grpc.testing.TestService/FullDuplexCall"
_INPUT = "/grpc.testing.TestService/StreamingInputCall"
_OUTPUT = "/grpc.testing.TestService/StreamingOutputCall"
_LARGEST = (1 << 31) - 1
# 64 MiB in messages of 64 KiB.
_MUCH = StreamingOutputCallRequest(response_parameters=[ResponseParameters(size=65_536)] * 1024).SerializeToString()


def test_the_connection_window_does_not_overflow(server: Server, client: Client) -> None:
    """Section 6.9.1: a window beyond 2^31-1 is a FLOW_CONTROL_ERROR, of the connection or of the stream."""
    with siege(server):
        client.send(window_update(0, _LARGEST))
        assert client.fate() == Code.FLOW_CONTROL_ERROR


def test_a_stream_window_does_not_overflow(server: Server, client: Client) -> None:
    with siege(server):
        client.send(client.headers(1, client.request(_DUPLEX)) + window_update(1, _LARGEST))
        assert client.answer(1).reset == Code.FLOW_CONTROL_ERROR
    assert client.goaway is None


def test_an_initial_window_is_not_too_large(server: Server, client: Client) -> None:
    """Section 6.5.2."""
    with siege(server):
        client.send(settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}))
        assert client.fate() == Code.FLOW_CONTROL_ERROR


def test_a_larger_initial_window_does_not_overflow_a_stream(server: Server) -> None:
    """Section 6.9.2: the difference counts for streams that are open; overflow is an error of the connection."""
    with Client(server.plain, window=1000) as client, siege(server):
        client.send(client.headers(1, client.request(_DUPLEX)) + window_update(1, _LARGEST - 1000))
        client.send(settings({Setting.INITIAL_WINDOW_SIZE: 1001}))
        assert client.fate() == Code.FLOW_CONTROL_ERROR


def test_data_beyond_the_window(server: Server, client: Client) -> None:
    """Section 6.9.1. The servicer waits before it reads again, so what comes meanwhile has to be held."""
    wait = StreamingOutputCallRequest(response_parameters=[ResponseParameters(size=1, interval_us=2_000_000)])
    flood = message(StreamingOutputCallRequest(payload=Payload(body=bytes(15_000))).SerializeToString())
    octets = client.headers(1, client.request(_DUPLEX)) + data(1, message(wait.SerializeToString()))
    octets += data(1, flood) * 4000
    with siege(server, growth=32 * MIB):
        client.blast(octets)
        client.until(lambda client: client.goaway or (1 in client.answers and client.answers[1].reset is not None))
    code = client.goaway.code if client.goaway else client.answers[1].reset
    assert code == Code.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("window", [0, _LARGEST], ids=["no window", "no reading"])
def test_a_slow_reader_stops_its_writers(server: Server, window: int) -> None:
    """100 streams ask for 6.4 GB: the servicers have to wait, whether windows or the socket are full."""
    with Client(server.plain, window=window, receive_buffer=8192) as client, siege(server, growth=48 * MIB):
        for stream in range(1, 200, 2):
            client.send(client.call(stream, _OUTPUT, _MUCH))
        time.sleep(1.0)


def test_a_slow_reader_of_unary_answers(server: Server) -> None:
    """A unary answer is made at once, and then has to be held: 512 of 1 MiB stay within the connection's bound."""
    request = SimpleRequest(response_size=MIB).SerializeToString()
    with Client(server.plain, window=0) as client, siege(server, growth=160 * MIB):
        for stream in range(1, 1024, 2):
            client.send(client.call(stream, _UNARY, request))
        time.sleep(1.0)


def test_a_reader_of_single_bytes(server: Server) -> None:
    """CVE-2019-9511, "Data Dribble": each update of a window lets one byte go."""
    with Client(server.plain, window=0) as client, siege(server):
        client.send(client.call(1, _OUTPUT, _MUCH))
        client.blast(window_update(1, 1) * 10_000, 2.0)


def test_requests_byte_by_byte(server: Server, client: Client) -> None:
    """Every frame has one byte of a message; slow as it is, it is a request."""
    body = message(StreamingInputCallRequest(payload=Payload(body=bytes(20))).SerializeToString())
    streams = range(1, 200, 2)
    with siege(server):
        client.send(b"".join(client.headers(stream, client.request(_INPUT)) for stream in streams))
        for position in range(len(body)):
            last = position == len(body) - 1
            piece = body[position : position + 1]
            client.send(b"".join(data(stream, piece, end=last) for stream in streams))
        for stream in streams:
            [(_, answer)] = client.answer(stream).messages
            assert StreamingInputCallResponse.FromString(answer).aggregated_payload_size == 20


def test_a_slow_reader_over_tls(server: Server) -> None:
    """What is encrypted already waits in another buffer than what is not: neither may grow."""
    context = ssl.create_default_context(cafile=server.authority)
    context.set_alpn_protocols(["h2"])
    with (
        Client(server.tls, context=context, server_name=SERVER_NAME, receive_buffer=8192) as client,
        siege(server, growth=48 * MIB),
    ):
        for stream in range(1, 200, 2):
            client.send(client.call(stream, _OUTPUT, _MUCH))
        time.sleep(1.0)


def test_who_hangs_up_and_does_not_read(server: Server) -> None:
    """The client has closed its side: what it asked for is not written into memory, and nothing is left of it."""
    with siege(server, growth=48 * MIB):
        for _ in range(20):
            with Client(server.plain, receive_buffer=8192) as client:
                for stream in range(1, 20, 2):
                    client.send(client.call(stream, _OUTPUT, _MUCH))
                client.hang_up()
                time.sleep(0.05)

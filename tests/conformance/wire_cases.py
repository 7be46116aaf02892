"""Cases that the external programs do not cover, by raw frames: requests that are not gRPC, compression, deadlines.

grpc-go's client has no compression cases of the interop suite, and only frames show whether a message is compressed.
"""

import ssl
from collections.abc import Callable, Iterator

import grpc

from tests.attacks.raw_client import Client, Response, data, message
from tests.conformance import probe_service
from tests.conformance.programs import Result
from tests.conformance.protos.grpc.testing.messages_pb2 import (
    BoolValue,
    Payload,
    ResponseParameters,
    SimpleRequest,
    StreamingInputCallRequest,
    StreamingInputCallResponse,
    StreamingOutputCallRequest,
    StreamingOutputCallResponse,
)
from tests.conformance.server_process import SERVER_NAME, Server

_UNARY = "/grpc.testing.TestService/UnaryCall"
_HANG = f"/{probe_service.SERVICE}/Hang"
_STREAMING_INPUT = "/grpc.testing.TestService/StreamingInputCall"
_STREAMING_OUTPUT = "/grpc.testing.TestService/StreamingOutputCall"
# Sizes from doc/interop-test-descriptions.md of grpc/grpc.
_REQUEST_SIZE, _RESPONSE_SIZE = 271_828, 314_159
_INPUT_SIZES, _OUTPUT_SIZES = (27_182, 45_904), (31_415, 92_653)
_GZIP, _ACCEPT_GZIP = ("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, gzip")
_LARGE = SimpleRequest(response_size=_RESPONSE_SIZE, payload=Payload(body=bytes(_REQUEST_SIZE))).SerializeToString()

Case = Callable[[Client], None]


def _equal(actual: object, expected: object) -> None:
    assert actual == expected, f"{actual} instead of {expected}"


def _status(response: Response, expected: grpc.StatusCode) -> None:
    assert response.http_status == 200, _describe(response)
    assert response.grpc_status == expected.value[0], _describe(response)


def _describe(response: Response) -> str:
    return f"headers {response.headers}, reset {response.reset}"


def _sizes(response: Response) -> list[tuple[bool, int]]:
    """Return whether each message was compressed, and the size of its payload."""
    _status(response, grpc.StatusCode.OK)
    return [
        (compressed, len(StreamingOutputCallResponse.FromString(body).payload.body))
        for compressed, body in response.messages
    ]


# RFC 9110 sections 15.5.6 and 15.5.16; doc/PROTOCOL-HTTP2.md of grpc/grpc defines gRPC's content-types.


def _plain(method: str, content_type: str | None, status: int) -> Case:
    def case(client: Client) -> None:
        fields = {":method": method, ":scheme": "http", ":path": _UNARY, ":authority": "gantry.test"}
        if content_type is not None:
            fields["content-type"] = content_type
        ends = method in ("GET", "HEAD")
        client.send(client.headers(1, fields.items(), end=ends) + (b"" if ends else data(1, b"hello", end=True)))
        response = client.response(1)
        assert response.http_status == status, _describe(response)
        assert bool(response.body) == (method != "HEAD"), "the rejection has a body, except for HEAD"

    return case


def _content_type(content_type: str) -> Case:
    def case(client: Client) -> None:
        client.send(client.call(1, _UNARY, b"", ("content-type", content_type)))
        _status(client.response(1), grpc.StatusCode.OK)

    return case


# doc/compression.md of grpc/grpc, and interop cases of the same names.


def _client_compressed_unary(client: Client) -> None:
    for stream, compressed in ((1, True), (3, False)):
        client.send(client.headers(stream, client.request(_UNARY, _GZIP)))
        client.upload(stream, message(_LARGE, compressed=compressed))
        _equal(_sizes(client.response(stream)), [(False, _RESPONSE_SIZE)])


def _client_compressed_streaming(client: Client) -> None:
    client.send(client.headers(1, client.request(_STREAMING_INPUT, _GZIP)))
    first, second = (
        StreamingInputCallRequest(payload=Payload(body=bytes(size))).SerializeToString() for size in _INPUT_SIZES
    )
    client.upload(1, message(first, compressed=True) + message(second))
    response = client.response(1)
    _status(response, grpc.StatusCode.OK)
    received = StreamingInputCallResponse.FromString(response.messages[0][1])
    _equal(received.aggregated_payload_size, sum(_INPUT_SIZES))


def _server_compressed_unary(client: Client) -> None:
    for stream, compressed in ((1, True), (3, False)):
        request = SimpleRequest(response_size=_RESPONSE_SIZE, response_compressed=BoolValue(value=compressed))
        client.send(client.call(stream, _UNARY, request.SerializeToString(), _ACCEPT_GZIP))
        _equal(_sizes(client.response(stream)), [(compressed, _RESPONSE_SIZE)])


def _server_compressed_streaming(client: Client) -> None:
    first, second = _OUTPUT_SIZES
    request = StreamingOutputCallRequest(
        response_parameters=[
            ResponseParameters(size=first, compressed=BoolValue(value=True)),
            ResponseParameters(size=second, compressed=BoolValue(value=False)),
        ]
    )
    client.send(client.call(1, _STREAMING_OUTPUT, request.SerializeToString(), _ACCEPT_GZIP))
    response = client.response(1)
    _equal(response.headers[0].get("grpc-encoding"), "gzip")
    _equal(_sizes(response), [(True, first), (False, second)])


def _not_accepted(client: Client) -> None:
    request = SimpleRequest(response_size=_RESPONSE_SIZE, response_compressed=BoolValue(value=True))
    client.send(client.call(1, _UNARY, request.SerializeToString()))
    _equal(_sizes(client.response(1)), [(False, _RESPONSE_SIZE)])


def _unknown_encoding(client: Client) -> None:
    client.send(client.headers(1, client.request(_UNARY, ("grpc-encoding", "snappy"))))
    client.send(data(1, b"\1" + message(b"?")[1:], end=True))
    response = client.response(1)
    _status(response, grpc.StatusCode.UNIMPLEMENTED)
    accepted = {name.strip() for name in response.headers[0].get("grpc-accept-encoding", "").split(",")}
    assert {"identity", "gzip"} <= accepted, f"accepts {accepted}"


def _flag_without_encoding(client: Client) -> None:
    client.send(client.headers(1, client.request(_UNARY)) + data(1, message(b"", compressed=True), end=True))
    _status(client.response(1), grpc.StatusCode.INTERNAL)


def _concurrent_large_unary(client: Client) -> None:
    streams = range(1, 100, 2)
    for stream in streams:
        client.send(client.headers(stream, client.request(_UNARY)))
        client.upload(stream, message(_LARGE))
    for stream in streams:
        _equal(_sizes(client.response(stream, 30)), [(False, _RESPONSE_SIZE)])


def _deadlines(client: Client) -> None:
    """The client does not react to the deadline, so the server has to end the calls."""
    streams = range(1, 40, 2)
    for stream in streams:
        client.send(client.call(stream, _HANG, b"", ("grpc-timeout", "200m")))
    for stream in streams:
        _status(client.response(stream), grpc.StatusCode.DEADLINE_EXCEEDED)


CASES: dict[str, Case] = {
    "GET is 405": _plain("GET", None, 405),
    "GET with gRPC's content-type is 405": _plain("GET", "application/grpc", 405),
    "HEAD is 405 without a body": _plain("HEAD", None, 405),
    "PUT is 405": _plain("PUT", "application/grpc", 405),
    "POST of text is 415": _plain("POST", "text/plain", 415),
    "POST without content-type is 415": _plain("POST", None, 415),
    "POST of gRPC-Web is 415": _plain("POST", "application/grpc-web", 415),
    "content-type application/grpc+proto": _content_type("application/grpc+proto"),
    "content-type application/grpc; charset=utf-8": _content_type("application/grpc; charset=utf-8"),
    "client_compressed_unary": _client_compressed_unary,
    "client_compressed_streaming": _client_compressed_streaming,
    "server_compressed_unary": _server_compressed_unary,
    "server_compressed_streaming": _server_compressed_streaming,
    "no compression for a client that does not accept it": _not_accepted,
    "an unknown encoding is UNIMPLEMENTED": _unknown_encoding,
    "a compressed message without encoding is INTERNAL": _flag_without_encoding,
    "concurrent_large_unary": _concurrent_large_unary,
    "calls with one deadline all end": _deadlines,
}


def names() -> Iterator[tuple[str, str, bool]]:
    """Yield name of the result, case, and whether it runs over TLS."""
    for connection, tls in (("plain", False), ("tls", True)):
        for case in CASES:
            yield f"wire {connection} {case}", case, tls


def run(server: Server, name: str, case: str, *, tls: bool) -> Result:
    """Run one case on a new connection."""
    try:
        with Client(
            server.tls if tls else server.plain, context=_trusting(server) if tls else None, server_name=SERVER_NAME
        ) as client:
            CASES[case](client)
    except (AssertionError, OSError, LookupError, ValueError) as error:
        return Result(name, False, f"{type(error).__name__}: {error}")
    return Result(name, True)


def _trusting(server: Server) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.authority)
    context.set_alpn_protocols(["h2"])
    return context

"""Requests that grpcio clients do not send: malformed, fragmented or over a limit."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import unquote

import grpc
import pytest

from grpc_gateway.http2 import CloseCause, Limits, frames
from grpc_gateway.server import RpcError, Server, ServerOptions
from tests.grpc_gateway.http2.http2_client import END, PREFACE, data, settings
from tests.grpc_gateway.server.servers import SERVICE, STREAM_UNARY, UNARY, UNARY_STREAM, run_ready_callbacks
from tests.grpc_gateway.server.wire_client import WireClient, message

pytestmark = pytest.mark.anyio


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def join(requests: AsyncIterator[bytes], _: Any) -> bytes:
    return b",".join([request async for request in requests])


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(ServerOptions(max_receive_message=1000, max_request_bytes=5000))
    server.add_registered_method_handlers(SERVICE, {"Echo": UNARY(echo), "Join": STREAM_UNARY(join)})
    yield server
    for connection in tuple(server.connections):
        connection.connection_lost(None)
    await server.close()


@pytest.fixture
async def wire(server: Server) -> WireClient:
    return WireClient(server)


async def test_responses_to_one_read_are_one_write(wire: WireClient) -> None:
    await asyncio.sleep(0)
    before = len(wire.transport.written)
    wire.send_bytes(b"".join(wire.call(number, "Echo") + data(number, message(b"x"), END) for number in (1, 3, 5)))
    await run_ready_callbacks()
    assert len(wire.transport.written) == before + 1
    head, body, trailers = await wire.response(5)
    assert head == {":status": "200", "content-type": "application/grpc"}
    assert (body, trailers) == (message(b"x"), {"grpc-status": "0"})


STATUS_BY_REQUEST: dict[str, tuple[tuple[tuple[str, str], ...], bytes, str]] = {
    "no message": ((), b"", "12"),
    "two messages": ((), message(b"a") + message(b"b"), "12"),
    "half a message": ((), message(b"abc")[:-1], "13"),
    "half a prefix": ((), b"\0\0", "13"),
    "compressed without encoding": ((), message(b"a", 1), "13"),
    "an unknown flag": ((("grpc-encoding", "gzip"),), message(b"a", 2), "13"),
    "not gzip": ((("grpc-encoding", "gzip"),), message(b"abc", 1), "13"),
    "truncated gzip": ((("grpc-encoding", "gzip"),), message(gzip.compress(b"abc")[:-1], 1), "13"),
    "an unknown encoding": ((("grpc-encoding", "br"),), message(b"a"), "12"),
    "a bomb": ((("grpc-encoding", "gzip"),), message(gzip.compress(bytes(100_000)), 1), "8"),
    "too large": ((), message(bytes(1001)), "8"),
    "a malformed timeout": ((("grpc-timeout", "1"),), message(b"a"), "13"),
    "a timeout of nine digits": ((("grpc-timeout", "123456789m"),), message(b"a"), "13"),
    "binary metadata that are not base64": ((("a-bin", "?"),), message(b"a"), "13"),
    "gzip in two members": (
        (("grpc-encoding", "gzip"),),
        message(gzip.compress(b"a") + gzip.compress(b"b"), 1),
        "0",
    ),
    "an uncompressed message despite grpc-encoding": ((("grpc-encoding", "gzip"),), message(b"a"), "0"),
    "metadata with padding": ((("a-bin", "YQ=="), ("b-bin", "YQ,YQ==")), message(b"a"), "0"),
}


@pytest.mark.parametrize("name", STATUS_BY_REQUEST)
async def test_request_ends_with_status(wire: WireClient, name: str) -> None:
    fields, body, status = STATUS_BY_REQUEST[name]
    wire.send_bytes(wire.call(1, "Echo", *fields) + data(1, body, END))
    head, _, trailers = await wire.response()
    assert (trailers or head)["grpc-status"] == status
    if name == "an unknown encoding":
        assert head["grpc-accept-encoding"] == "identity,deflate,gzip"
    # The connection stays usable.
    wire.send_bytes(wire.call(3, "Echo") + data(3, message(b"x"), END))
    assert (await wire.response(3))[1] == message(b"x")


async def test_a_timeout_of_zero_ends_the_call(wire: WireClient) -> None:
    wire.send_bytes(wire.call(1, "Echo", ("grpc-timeout", "0n")))
    head, _, _ = await wire.response()
    assert head["grpc-status"] == "4"


async def test_a_message_over_the_limit_is_refused_at_its_prefix(wire: WireClient) -> None:
    wire.send_bytes(wire.call(1, "Echo") + data(1, (b"\0" + (2000).to_bytes(4))))
    head, _, _ = await wire.response()
    assert head["grpc-status"] == "8"
    assert wire.resets == [(1, 0)]


async def test_incomplete_requests_of_a_connection_are_limited(wire: WireClient) -> None:
    for number in range(1, 13, 2):
        wire.send_bytes(wire.call(number, "Echo") + data(number, message(bytes(1000))[:-1]))
    head, _, _ = await wire.response(9)
    assert head["grpc-status"] == "8"
    assert wire.channel.open_calls.request_bytes < 5000
    for number in (1, 3, 5, 7, 11):
        wire.send_bytes(data(number, b"\0", END))
    assert (await wire.response(1))[2] == {"grpc-status": "0"}
    assert wire.channel.open_calls.request_bytes == 0


@pytest.mark.parametrize("portion", [1, 7, 1000])
async def test_fragmented_requests_are_reassembled(wire: WireClient, portion: int) -> None:
    sent = (
        wire.call(1, "Echo")
        + data(1, message(b"abc")[:4])
        + wire.call(3, "Join")
        + data(3, message(b"a") + message(b"b")[:2])
        + data(1, message(b"abc")[4:], END)
        + data(3, message(b"b")[2:])
        + data(3, b"", END)
    )
    for start in range(0, len(sent), portion):
        wire.send_bytes(sent[start : start + portion])
    assert (await wire.response(1))[1] == message(b"abc")
    assert (await wire.response(3))[1] == message(b"a,b")


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("GET", "", "405"),
        ("HEAD", "", "405"),
        ("OPTIONS", "application/grpc", "405"),
        ("POST", "", "415"),
        ("POST", "text/plain", "415"),
        ("POST", "application/grpc-web", "415"),
    ],
)
async def test_a_request_that_is_not_grpc_gets_an_http_status(
    wire: WireClient, server: Server, method: str, content_type: str, status: str
) -> None:
    head = ((":method", method), (":scheme", "http"), (":path", "/"))
    fields = (("content-type", content_type),) if content_type else ()
    wire.send_bytes(wire.headers(1, *head, *fields) + data(1, b"body", END))
    answer, body, _ = await wire.response()
    assert answer[":status"] == status
    assert answer["content-type"].startswith("text/plain")
    assert bool(body) is (method != "HEAD")
    assert server.calls() == {}


async def test_a_rejected_request_with_an_endless_body_is_reset(wire: WireClient) -> None:
    wire.send_bytes(wire.headers(1, (":method", "PUT"), (":scheme", "http"), (":path", "/")))
    for _ in range(5):
        wire.send_bytes(data(1, bytes(16_000)))
    assert (await wire.response())[0][":status"] == "405"
    assert wire.resets == [(1, 0)]


async def test_context_describes_a_tls_client(server: Server, wire: WireClient) -> None:
    contexts: list[Any] = []

    async def keep_context(request: bytes, context: Any) -> bytes:
        contexts.append(context)
        return request

    server.add_registered_method_handlers(SERVICE, {"Keep": UNARY(keep_context)})
    wire.send_bytes(wire.call(1, "Keep") + data(1, message(b""), END))
    await wire.response()
    context = contexts[0]
    assert context.peer() == "ipv6:%5B::1%5D:7"
    assert context.peer_identity_key() == "x509_common_name"
    assert context.peer_identities() == [b"al,ice"]
    assert context.auth_context()["transport_security_type"] == [b"ssl"]


async def test_status_metadata_over_the_clients_header_list_limit_is_dropped(server: Server, wire: WireClient) -> None:
    async def refuse(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("a", "x" * 1000),))
        raise LookupError

    server.add_registered_method_handlers(SERVICE, {"Refuse": UNARY(refuse)})
    wire.send_bytes(frames.settings({6: 500}) + wire.call(1, "Refuse") + data(1, message(b""), END))
    head, _, _ = await wire.response()
    assert (head["grpc-status"], "a" in head) == ("2", False)


async def test_a_full_socket_pauses_reading_and_writers(server: Server, wire: WireClient) -> None:
    written = 0

    async def write_ten(_: bytes, context: Any) -> None:
        nonlocal written
        for _number in range(10):
            await context.write(b"x")
            written += 1

    server.add_registered_method_handlers(SERVICE, {"WriteTen": UNARY_STREAM(write_ten)})
    wire.channel.pause_writing()
    assert [wire.transport.reading] == [False]
    wire.send_bytes(wire.call(1, "WriteTen") + data(1, message(b""), END))
    await run_ready_callbacks()
    assert written == 0
    wire.channel.resume_writing()
    assert [wire.transport.reading] == [True]
    assert (await wire.response())[1] == message(b"x") * 10


async def test_unread_responses_defer_new_requests(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000))
    wire = WireClient(server)
    wire.send_bytes(settings(initial_window_size=0))
    for number in (1, 3, 5):
        wire.send_bytes(wire.call(number, "Echo") + data(number, message(b"x" * 900), END))
        await run_ready_callbacks()
    assert [call.stream.id for call in wire.channel.open_calls.calls] == []
    assert wire.channel.http2.sender.waiting == 2 * 905
    # The third request starts when there is room.
    wire.send_bytes(frames.window_update(1, 1000) + frames.window_update(5, 1000))
    await run_ready_callbacks()
    assert (await wire.response(5))[1] == message(b"x" * 900)


async def test_a_protocol_error_sends_goaway_before_closing(wire: WireClient) -> None:
    wire.send_bytes(b"\xff" * 100)
    wire.read_frames()
    assert wire.goaway is not None
    assert wire.goaway[1] == 6
    assert wire.transport.ended
    assert not wire.transport.aborted
    wire.send_bytes(PREFACE)
    wire.channel.connection_lost(None)
    assert wire.channel.cause is CloseCause.PROTOCOL


async def test_a_failing_generic_handler_resets_only_its_call(
    server: Server, wire: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The call ends, and deadlines of other calls still expire."""

    class Broken(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            raise LookupError(handler_call_details.method)

    server.add_generic_rpc_handlers([Broken()])
    wire.send_bytes(wire.call(1, "Nothing", ("grpc-timeout", "20m")) + data(1, message(b""), END))
    await asyncio.sleep(0)
    assert wire.channel.open_calls.calls == set()
    wire.send_bytes(wire.call(3, "Join", ("grpc-timeout", "60m")))
    assert (await wire.response(3))[0]["grpc-status"] == "4"
    assert "LookupError" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        RpcError(cast(Any, 5), "a number is not a code"),
        RpcError(grpc.StatusCode.NOT_FOUND, cast(Any, b"bytes")),
        RpcError(grpc.StatusCode.NOT_FOUND, "", cast(Any, [(1, 2)])),
    ],
)
async def test_a_status_that_cannot_be_encoded_becomes_internal(
    server: Server, wire: WireClient, error: RpcError, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: bytes, __: Any) -> bytes:
        raise error

    server.add_registered_method_handlers(SERVICE, {"Fail": UNARY(fail)})
    wire.send_bytes(wire.call(1, "Fail") + data(1, message(b""), END))
    assert (await wire.response())[0]["grpc-status"] == "13"
    assert "cannot be sent" in caplog.text


@pytest.mark.parametrize("details", [" a ", " ", "\n", "ä %", "  "])
async def test_details_are_encoded_as_a_valid_field_value(server: Server, wire: WireClient, details: str) -> None:
    """RFC 9113 section 8.2.1 allows no space at either end of a field value."""

    async def fail(_: bytes, __: Any) -> bytes:
        raise RpcError(grpc.StatusCode.NOT_FOUND, details)

    server.add_registered_method_handlers(SERVICE, {"Fail": UNARY(fail)})
    wire.send_bytes(wire.call(1, "Fail") + data(1, message(b""), END))
    sent = (await wire.response())[0]["grpc-message"]
    assert sent == sent.strip()
    assert unquote(sent) == details

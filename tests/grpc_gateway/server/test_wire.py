"""What no grpcio client sends: requests byte by byte, on a connection with a transport of the test's own."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import unquote

import grpc
import pytest

from grpc_gateway.http2 import CloseCause, Limits, frames
from grpc_gateway.server import RpcError, Server, ServerOptions
from tests.grpc_gateway.http2.kit import END, GREETING, data, settings
from tests.grpc_gateway.server.kit import SERVICE, STREAM, STREAM_UNARY, UNARY, UNARY_STREAM, settle
from tests.grpc_gateway.server.wire import Wire, message

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
async def wire(server: Server) -> Wire:
    return Wire(server)


async def test_the_answer_is_one_write(wire: Wire) -> None:
    await asyncio.sleep(0)
    before = len(wire.transport.written)
    wire.say(b"".join(wire.call(number, "Echo") + data(number, message(b"x"), END) for number in (1, 3, 5)))
    await settle()
    assert len(wire.transport.written) == before + 1
    head, body, trailers = await wire.answer(5)
    assert head == {":status": "200", "content-type": "application/grpc"}
    assert (body, trailers) == (message(b"x"), {"grpc-status": "0"})


STATUSES: dict[str, tuple[tuple[tuple[str, str], ...], bytes, str]] = {
    "no message": ((), b"", "12"),
    "two messages": ((), message(b"a") + message(b"b"), "12"),
    "half a message": ((), message(b"abc")[:-1], "13"),
    "half a prefix": ((), b"\0\0", "13"),
    "compressed without encoding": ((), message(b"a", 1), "13"),
    "an unknown flag": ((("grpc-encoding", "gzip"),), message(b"a", 2), "13"),
    "not gzip": ((("grpc-encoding", "gzip"),), message(b"abc", 1), "13"),
    "gzip cut short": ((("grpc-encoding", "gzip"),), message(gzip.compress(b"abc")[:-1], 1), "13"),
    "an unknown encoding": ((("grpc-encoding", "br"),), message(b"a"), "12"),
    "a bomb": ((("grpc-encoding", "gzip"),), message(gzip.compress(bytes(100_000)), 1), "8"),
    "too large": ((), message(bytes(1001)), "8"),
    "a timeout that is none": ((("grpc-timeout", "1"),), message(b"a"), "13"),
    "a timeout of nine digits": ((("grpc-timeout", "123456789m"),), message(b"a"), "13"),
    "metadata that are not base64": ((("a-bin", "?"),), message(b"a"), "13"),
    "gzip in two members": (
        (("grpc-encoding", "gzip"),),
        message(gzip.compress(b"a") + gzip.compress(b"b"), 1),
        "0",
    ),
    "compressed and not needed": ((("grpc-encoding", "gzip"),), message(b"a"), "0"),
    "metadata with padding": ((("a-bin", "YQ=="), ("b-bin", "YQ,YQ==")), message(b"a"), "0"),
}


@pytest.mark.parametrize("name", STATUSES)
async def test_statuses(wire: Wire, name: str) -> None:
    fields, body, status = STATUSES[name]
    wire.say(wire.call(1, "Echo", *fields) + data(1, body, END))
    head, _, trailers = await wire.answer()
    assert (trailers or head)["grpc-status"] == status
    if name == "an unknown encoding":
        assert head["grpc-accept-encoding"] == "identity,deflate,gzip"
    # The connection goes on.
    wire.say(wire.call(3, "Echo") + data(3, message(b"x"), END))
    assert (await wire.answer(3))[1] == message(b"x")


async def test_a_deadline_that_has_passed(wire: Wire) -> None:
    wire.say(wire.call(1, "Echo", ("grpc-timeout", "0n")))
    head, _, _ = await wire.answer()
    assert head["grpc-status"] == "4"


async def test_a_message_that_is_too_large_is_refused_before_it_is_there(wire: Wire) -> None:
    wire.say(wire.call(1, "Echo") + data(1, (b"\0" + (2000).to_bytes(4))))
    head, _, _ = await wire.answer()
    assert head["grpc-status"] == "8"
    assert wire.resets == [(1, 0)]


async def test_unfinished_requests_of_a_connection_are_bounded(wire: Wire) -> None:
    for number in range(1, 13, 2):
        wire.say(wire.call(number, "Echo") + data(number, message(bytes(1000))[:-1]))
    head, _, _ = await wire.answer(9)
    assert head["grpc-status"] == "8"
    assert wire.channel.held < 5000
    for number in (1, 3, 5, 7, 11):
        wire.say(data(number, b"\0", END))
    assert (await wire.answer(1))[2] == {"grpc-status": "0"}
    assert wire.channel.held == 0


@pytest.mark.parametrize("portion", [1, 7, 1000])
async def test_requests_in_any_portions(wire: Wire, portion: int) -> None:
    said = (
        wire.call(1, "Echo")
        + data(1, message(b"abc")[:4])
        + wire.call(3, "Join")
        + data(3, message(b"a") + message(b"b")[:2])
        + data(1, message(b"abc")[4:], END)
        + data(3, message(b"b")[2:])
        + data(3, b"", END)
    )
    for start in range(0, len(said), portion):
        wire.say(said[start : start + portion])
    assert (await wire.answer(1))[1] == message(b"abc")
    assert (await wire.answer(3))[1] == message(b"a,b")


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
async def test_what_is_no_grpc(wire: Wire, server: Server, method: str, content_type: str, status: str) -> None:
    head = ((":method", method), (":scheme", "http"), (":path", "/"))
    fields = (("content-type", content_type),) if content_type else ()
    wire.say(wire.headers(1, *head, *fields) + data(1, b"body", END))
    answer, body, _ = await wire.answer()
    assert answer[":status"] == status
    assert answer["content-type"].startswith("text/plain")
    assert bool(body) is (method != "HEAD")
    assert server.stats.plain == {int(status): 1}


async def test_a_plain_body_without_end_is_not_read_for_ever(wire: Wire) -> None:
    wire.say(wire.headers(1, (":method", "PUT"), (":scheme", "http"), (":path", "/")))
    for _ in range(5):
        wire.say(data(1, bytes(16_000)))
    assert (await wire.answer())[0][":status"] == "405"
    assert wire.resets == [(1, 0)]


async def test_who_calls_by_tls(server: Server, wire: Wire) -> None:
    contexts: list[Any] = []

    async def who(request: bytes, context: Any) -> bytes:
        contexts.append(context)
        return request

    server.add_registered_method_handlers(SERVICE, {"Who": UNARY(who)})
    wire.say(wire.call(1, "Who") + data(1, message(b""), END))
    await wire.answer()
    context = contexts[0]
    assert context.peer() == "ipv6:%5B::1%5D:7"
    assert context.peer_identity_key() == "x509_common_name"
    assert context.peer_identities() == [b"al,ice"]
    assert context.auth_context()["transport_security_type"] == [b"ssl"]


async def test_a_client_that_takes_small_lists(server: Server, wire: Wire) -> None:
    async def refuse(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("a", "x" * 1000),))
        raise LookupError

    server.add_registered_method_handlers(SERVICE, {"Refuse": UNARY(refuse)})
    wire.say(frames.settings({6: 500}) + wire.call(1, "Refuse") + data(1, message(b""), END))
    head, _, _ = await wire.answer()
    assert (head["grpc-status"], "a" in head) == ("2", False)


async def test_a_socket_that_takes_nothing_is_not_read(server: Server, wire: Wire) -> None:
    written = 0

    async def pour(_: bytes, context: Any) -> None:
        nonlocal written
        for _number in range(10):
            await context.write(b"x")
            written += 1

    server.add_registered_method_handlers(SERVICE, {"Pour": UNARY_STREAM(pour)})
    wire.channel.pause_writing()
    assert [wire.transport.reading] == [False]
    wire.say(wire.call(1, "Pour") + data(1, message(b""), END))
    await settle()
    assert written == 0
    wire.channel.resume_writing()
    assert [wire.transport.reading] == [True]
    assert (await wire.answer())[1] == message(b"x") * 10


async def test_answers_that_are_not_taken_hold_up_new_requests(server: Server) -> None:
    server.options = ServerOptions(limits=Limits(connection_buffer=1000))
    wire = Wire(server)
    wire.say(settings(initial_window_size=0))
    for number in (1, 3, 5):
        wire.say(wire.call(number, "Echo") + data(number, message(b"x" * 900), END))
        await settle()
    assert [call.stream.id for call in wire.channel.calls] == []
    assert wire.channel.http2.waiting == 2 * 905
    # The third is taken up when there is room.
    wire.say(frames.window_update(1, 1000) + frames.window_update(5, 1000))
    await settle()
    assert (await wire.answer(5))[1] == message(b"x" * 900)


async def test_last_words(wire: Wire) -> None:
    wire.say(b"\xff" * 100)
    wire.listen()
    assert wire.goaway is not None
    assert wire.goaway[1] == 6
    assert wire.transport.ended
    assert not wire.transport.aborted
    wire.say(GREETING)
    wire.channel.connection_lost(None)
    assert wire.channel.cause is CloseCause.PROTOCOL


async def test_a_thread_that_waits_for_requests_is_let_go(server: Server, wire: Wire) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen(requests: Any, context: Any) -> Any:
        loop.call_soon_threadsafe(started.set)
        try:
            yield from requests
        finally:
            loop.call_soon_threadsafe(ended.set)

    server.add_registered_method_handlers(SERVICE, {"Listen": STREAM(listen)})
    wire.say(wire.call(1, "Listen") + data(1, message(b"a")))
    async with asyncio.timeout(30):
        await started.wait()
        wire.say(frames.rst_stream(1, 8))
        await ended.wait()


async def test_a_registry_that_fails(server: Server, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """The call ends, the server counts it, and the clock of all deadlines goes on."""

    class Broken(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            raise LookupError(handler_call_details.method)

    server.add_generic_rpc_handlers([Broken()])
    wire.say(wire.call(1, "Nothing", ("grpc-timeout", "20m")) + data(1, message(b""), END))
    await asyncio.sleep(0)
    assert wire.channel.calls == set()
    wire.say(wire.call(3, "Join", ("grpc-timeout", "60m")))
    assert (await wire.answer(3))[0]["grpc-status"] == "4"
    assert "LookupError" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        RpcError(cast(Any, 5), "a number is no code"),
        RpcError(grpc.StatusCode.NOT_FOUND, cast(Any, b"bytes")),
        RpcError(grpc.StatusCode.NOT_FOUND, "", cast(Any, [(1, 2)])),
    ],
)
async def test_a_status_that_cannot_be_sent(
    server: Server, wire: Wire, error: RpcError, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: bytes, __: Any) -> bytes:
        raise error

    server.add_registered_method_handlers(SERVICE, {"Fail": UNARY(fail)})
    wire.say(wire.call(1, "Fail") + data(1, message(b""), END))
    assert (await wire.answer())[0]["grpc-status"] == "13"
    assert "cannot be sent" in caplog.text


@pytest.mark.parametrize("details", [" a ", " ", "\n", "ä %", "  "])
async def test_details_are_a_field_value(server: Server, wire: Wire, details: str) -> None:
    """RFC 9113 section 8.2.1: no space at either end."""

    async def fail(_: bytes, __: Any) -> bytes:
        raise RpcError(grpc.StatusCode.NOT_FOUND, details)

    server.add_registered_method_handlers(SERVICE, {"Fail": UNARY(fail)})
    wire.say(wire.call(1, "Fail") + data(1, message(b""), END))
    sent = (await wire.answer())[0]["grpc-message"]
    assert sent == sent.strip()
    assert unquote(sent) == details

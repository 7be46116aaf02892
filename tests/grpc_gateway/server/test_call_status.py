"""Status and metadata of calls by grpcio's client."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from grpc_gateway.server import RpcError, ServerCall, immediate
from tests.grpc_gateway.server.servers import (
    UNARY,
    UNARY_STREAM,
    path,
    serving,
    status_of,
)

pytestmark = pytest.mark.anyio


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def abort(_: bytes, context: Any) -> bytes:
    await context.abort(
        grpc.StatusCode.FAILED_PRECONDITION, "failed: 100 % \u00fcber\n", (("a", "b"), ("c-bin", b"\0\xff"))
    )
    raise AssertionError


async def raise_rpc_error(_: bytes, __: Any) -> bytes:
    raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, "failed: 100 % \u00fcber\n", (("a", "b"), ("c-bin", b"\0\xff")))


@pytest.mark.parametrize("behaviour", [abort, raise_rpc_error])
async def test_abort_sends_code_details_and_metadata(behaviour: Any) -> None:
    async with serving({"Abort": UNARY(behaviour)}) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(path("Abort"))(b"")
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert raised.value.details() == "failed: 100 % \u00fcber\n"
        assert tuple(raised.value.trailing_metadata()) == (("a", "b"), ("c-bin", b"\0\xff"))


@pytest.mark.parametrize("number", range(1, 17))
async def test_set_code_decides_the_status(number: int) -> None:
    code = next(code for code in grpc.StatusCode if code.value[0] == number)

    async def fail(_: bytes, context: Any) -> bytes:
        context.set_code(code)
        context.set_details("as set")
        return b"dropped"

    async with serving({"Fail": UNARY(fail)}) as (server, channel):
        assert await status_of(channel.unary_unary(path("Fail"))(b"")) == (code, "as set")
        assert server.calls() == {(path("Fail"), code): 1}


@pytest.mark.parametrize("kind", ["coroutine function", "plain function", "immediate", "stream"])
async def test_an_exception_becomes_unknown_without_its_text(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: bytes, __: Any) -> bytes:
        raise KeyError("secret")

    def fail_plainly(_: bytes, __: Any) -> bytes:
        raise KeyError("secret")

    async def fail_stream(_: bytes, __: Any) -> AsyncIterator[bytes]:
        yield b"one"
        raise KeyError("secret")

    handler = {
        "coroutine function": UNARY(fail),
        "plain function": UNARY(fail_plainly),
        "immediate": UNARY(immediate(fail_plainly)),
        "stream": UNARY_STREAM(fail_stream),
    }[kind]
    async with serving({"Fail": handler}) as (_, channel):
        call = (channel.unary_stream if kind == "stream" else channel.unary_unary)(path("Fail"))
        assert await status_of(call(b"")) == (grpc.StatusCode.UNKNOWN, "internal error")
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_an_immediate_handler_raises_rpc_error() -> None:
    def refuse(_: bytes, __: Any) -> bytes:
        raise RpcError(grpc.StatusCode.NOT_FOUND, "nothing", [("why", "gone")])

    async with serving({"Refused": UNARY(immediate(refuse))}) as (_, channel):
        assert await status_of(channel.unary_unary(path("Refused"))(b"")) == (grpc.StatusCode.NOT_FOUND, "nothing")


async def test_unknown_methods_are_unimplemented_and_counted_together() -> None:
    async with serving({}) as (server, channel):
        for name in ("Nothing", "Else"):
            status = await status_of(channel.unary_unary(path(name))(b""))
            assert status == (grpc.StatusCode.UNIMPLEMENTED, f"unknown method {path(name)}")
        assert server.calls() == {("unknown", grpc.StatusCode.UNIMPLEMENTED): 2}


async def test_a_failing_serializer_is_internal(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> Any:
        raise ValueError("secret")

    handlers = {
        "In": grpc.unary_unary_rpc_method_handler(echo, request_deserializer=fail),
        "Out": grpc.unary_unary_rpc_method_handler(echo, response_serializer=fail),
    }
    async with serving(handlers) as (_, channel):
        for name in handlers:
            code, details = await status_of(channel.unary_unary(path(name))(b""))
            assert code is grpc.StatusCode.INTERNAL
            assert "secret" not in details


async def test_a_response_that_is_not_bytes_is_internal(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(_: bytes, __: Any) -> None:
        return None

    async with serving({"Nothing": UNARY(nothing)}) as (_, channel):
        assert (await status_of(channel.unary_unary(path("Nothing"))(b"")))[0] is grpc.StatusCode.INTERNAL


async def test_metadata_in_both_directions() -> None:
    received: list[Any] = []

    async def metadata(request: bytes, context: Any) -> bytes:
        received.append(context.invocation_metadata())
        await context.send_initial_metadata((("first", "1"), ("raw-bin", b"\x00\x01\xfe")))
        context.set_trailing_metadata((("last", "2"), ("raw-bin", b"")))
        return request

    async with serving({"Metadata": UNARY(metadata)}) as (_, channel):
        call = channel.unary_unary(path("Metadata"))(
            b"", metadata=(("key", "value"), ("key", "again"), ("a-bin", b"\xff\x00,"), ("b-bin", b"x"))
        )
        await call
        assert [pair for pair in await call.initial_metadata() if pair[0] in ("first", "raw-bin")] == [
            ("first", "1"),
            ("raw-bin", b"\x00\x01\xfe"),
        ]
        assert tuple(await call.trailing_metadata()) == (("last", "2"), ("raw-bin", b""))
    pairs = [(datum.key, datum.value) for datum in received[0] if datum.key != "user-agent"]
    assert pairs == [("key", "value"), ("key", "again"), ("a-bin", b"\xff\x00,"), ("b-bin", b"x")]


@pytest.mark.parametrize(
    "illegal", [("Upper", "x"), ("grpc-status", "0"), (":path", "/"), ("a", "line\nfeed"), ("", "x")]
)
async def test_illegal_trailing_metadata_raises_in_the_handler(
    illegal: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def metadata(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((illegal,))
        return b""

    async with serving({"Metadata": UNARY(metadata)}) as (_, channel):
        assert (await status_of(channel.unary_unary(path("Metadata"))(b"")))[0] is grpc.StatusCode.UNKNOWN


async def test_context_describes_the_client() -> None:
    contexts: list[ServerCall] = []

    async def name_peer(_: bytes, context: Any) -> bytes:
        contexts.append(context)
        return str(context.peer()).encode()

    async with serving({"NamePeer": UNARY(name_peer)}) as (server, channel):
        peer = (await channel.unary_unary(path("NamePeer"))(b"")).decode()
        await channel.unary_unary(path("NamePeer"))(b"")
        assert peer.startswith("ipv4:127.0.0.1:")
        assert peer == f"ipv4:{contexts[0].connection.peer.address}"
        assert contexts[0].connection is contexts[1].connection
        assert server.connections == {contexts[0].connection}
        assert contexts[0].auth_context() == {}
        assert contexts[0].peer_identities() is None

"""A server on a socket of its own, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from grpc_gateway.server import Server, ServerOptions
from protocol_negotiation.peer import Peer, socket_address

SERVICE = "test.Service"
Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]

# Handlers of bytes, whatever kind of function they are.
UNARY: Any = grpc.unary_unary_rpc_method_handler
UNARY_STREAM: Any = grpc.unary_stream_rpc_method_handler
STREAM_UNARY: Any = grpc.stream_unary_rpc_method_handler
STREAM: Any = grpc.stream_stream_rpc_method_handler


class AdvertisedListener(asyncio.Protocol):
    """Stands in for the negotiation: hands the transport over before the first byte."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = Peer(
            socket_address(transport.get_extra_info("peername")), socket_address(transport.get_extra_info("sockname"))
        )
        protocol = self._server.protocol(peer)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[int]:
    """The port that the server is reached at."""
    listener = await asyncio.get_running_loop().create_server(lambda: AdvertisedListener(server), "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.close()


@asynccontextmanager
async def serving(
    handlers: Handlers,
    options: ServerOptions | None = None,
    client_options: tuple[tuple[str, Any], ...] = (),
    compression: grpc.Compression | None = None,
    **kinds: Any,
) -> AsyncIterator[tuple[Server, Any]]:
    """A server with these handlers of bytes, and a grpc.aio channel to it."""
    server = Server(options or ServerOptions(), **kinds)
    server.add_registered_method_handlers(SERVICE, handlers)
    async with (
        listening(server) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", client_options, compression=compression) as channel,
    ):
        yield server, channel


def path(name: str) -> str:
    return f"/{SERVICE}/{name}"


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a unary call, or the reading of a streamed answer, ends."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def opened(port: int, *options: tuple[str, Any]) -> Any:
    """A grpc.aio channel. (Its calls without serializers have no type.)"""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)


async def settle() -> None:
    """Let everything that is ready run, and what that makes ready."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)

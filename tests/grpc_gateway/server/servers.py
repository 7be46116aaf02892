"""Servers on a listening socket, and clients of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from grpc_gateway.server import Server, ServerOptions
from protocol_negotiation.peer import Peer, socket_address

SERVICE = "test.Service"
Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]

# Makers of method handlers for bytes, without the types of grpcio's stubs.
UNARY: Any = grpc.unary_unary_rpc_method_handler
UNARY_STREAM: Any = grpc.unary_stream_rpc_method_handler
STREAM_UNARY: Any = grpc.stream_unary_rpc_method_handler
STREAM: Any = grpc.stream_stream_rpc_method_handler


class Acceptor(asyncio.Protocol):
    """Replacement for the negotiation: hands over the transport before the first byte."""

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
    """Serve on a free port of the loopback address, and yield it."""
    listener = await asyncio.get_running_loop().create_server(lambda: Acceptor(server), "127.0.0.1", 0)
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
    **listeners: Any,
) -> AsyncIterator[tuple[Server, Any]]:
    """Yield a server with these handlers of bytes, and a grpc.aio channel to it."""
    server = Server(options or ServerOptions(), **listeners)
    server.add_registered_method_handlers(SERVICE, handlers)
    async with (
        listening(server) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", client_options, compression=compression) as channel,
    ):
        yield server, channel


def path(name: str) -> str:
    return f"/{SERVICE}/{name}"


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a call, after reading all of its response."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def channel_to(port: int, *options: tuple[str, Any]) -> Any:
    """Return a grpc.aio channel; untyped, as its calls without serializers have no type."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)


async def run_ready_callbacks() -> None:
    """Run the event loop for 50 turns."""
    for _ in range(50):
        await asyncio.sleep(0)

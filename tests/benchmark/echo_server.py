"""The bare gRPC server of the echo benchmark, on one of our two transports, until its input ends.

    python -m tests.benchmark.echo_server inprocess|immediate|grpcio HOST:PORT

`immediate` is `inprocess` with the unary method as a plain function, like the hot methods of the service.

Messages stay bytes, so that only the transport counts. The service is that of load/echo.go.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import uvloop

from grpc_gateway.server import Server, immediate
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode

STREAM_SIZE = 100


async def unary(request: bytes, _: Any) -> bytes:
    """Return the message."""
    return request


async def stream(request: bytes, _: Any) -> AsyncIterator[bytes]:
    """Yield the message a hundred times."""
    for _number in range(STREAM_SIZE):
        yield request


async def hold(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    """Yield each message as it arrives, until the client ends the stream."""
    async for request in requests:
        yield request


@immediate
def immediate_unary(request: bytes, _: Any) -> bytes:
    """Return the message, without a task."""
    return request


def service(unary: Callable[[bytes, Any], Any]) -> grpc.GenericRpcHandler:
    """Return the methods, without a codec."""
    return grpc.method_handlers_generic_handler(
        "benchmark.Echo",
        {
            "Unary": grpc.unary_unary_rpc_method_handler(unary),
            "Stream": grpc.unary_stream_rpc_method_handler(stream),
            "Hold": grpc.stream_stream_rpc_method_handler(hold),
        },
    )


@asynccontextmanager
async def inprocess(address: str, unary: Callable[[bytes, Any], Any] = unary) -> AsyncIterator[None]:
    """Serve on our transport, behind the listener that detects the protocol."""
    server = Server()
    server.add_generic_rpc_handlers((service(unary),))
    options = ListenerOptions(name="echo", address=HostPort.parse(address), tls_mode=TlsMode.DISABLED)
    listener = Listener(options, {Protocol.GRPC: server.protocol}, None, lambda *_: None)
    await listener.start()
    try:
        yield
    finally:
        await listener.close()
        await server.close()


@asynccontextmanager
async def grpcio(address: str) -> AsyncIterator[None]:
    """Serve on grpc.aio's server."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service(unary),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


TRANSPORTS: dict[str, Callable[[str], AbstractAsyncContextManager[None]]] = {
    "inprocess": inprocess,
    "immediate": lambda address: inprocess(address, immediate_unary),
    "grpcio": grpcio,
}


async def serve(transport: str, address: str) -> None:
    """Serve until stopped."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with TRANSPORTS[transport](address):
        # The parent holds the other end: when it dies, this process ends.
        loop.add_reader(sys.stdin, ended.set)
        await ended.wait()
        loop.remove_reader(sys.stdin)


def main() -> None:
    """Run on uvloop, as the proxy does."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.echo_server")
    parser.add_argument("transport", choices=TRANSPORTS)
    parser.add_argument("address")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.transport, options.address))


if __name__ == "__main__":
    main()

"""The server that the judges talk to, a process of its own: the interop test service on one of the transports.

    python -m tests.conformance.server --transport inprocess|grpcio --certificate FILE --key FILE [--largest BYTES]

`--largest`: of a message that is received; else what the transport has as its default. Prints one line of JSON, the
ports for plaintext and for TLS, and serves until its input ends or SIGTERM comes.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import uvloop

from grpc_gateway.server import Server, ServerOptions
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsFiles, TlsSource
from tests.conformance import interop, probe

HOST = "127.0.0.1"


class Ports(NamedTuple):
    """Where plaintext and TLS are spoken: one port does both for us, grpcio needs two."""

    plain: int
    tls: int


@asynccontextmanager
async def inprocess(files: TlsFiles, largest: int | None) -> AsyncIterator[Ports]:
    """Gantry's listener, which hands connections over to our server as it does in the product."""
    options = ServerOptions() if largest is None else ServerOptions(max_receive_message=largest)
    server = Server(options)
    _register(server)
    listen = ListenerOptions(name="judged", address=HostPort(HOST, 0))
    listener = Listener(listen, {Protocol.GRPC: server.protocol}, TlsSource(files), lambda *_: None)
    await listener.start()
    try:
        port = listener.addresses[0].port
        yield Ports(port, port)
    finally:
        await listener.abort()
        await server.close()


@asynccontextmanager
async def grpcio(files: TlsFiles, largest: int | None) -> AsyncIterator[Ports]:
    """grpc.aio's own server, which others call the reference."""
    server = grpc.aio.server(options=[] if largest is None else [("grpc.max_receive_message_length", largest)])
    _register(server)
    credentials = grpc.ssl_server_credentials([(files.key.read_bytes(), files.certificate.read_bytes())])
    ports = Ports(server.add_insecure_port(f"{HOST}:0"), server.add_secure_port(f"{HOST}:0", credentials))
    await server.start()
    try:
        yield ports
    finally:
        await server.stop(0)


def _register(server: interop.Registers) -> None:
    interop.register(server)
    probe.register(server)


TRANSPORTS: dict[str, Callable[[TlsFiles, int | None], AbstractAsyncContextManager[Ports]]] = {
    "inprocess": inprocess,
    "grpcio": grpcio,
}


async def serve(transport: str, files: TlsFiles, largest: int | None) -> None:
    """Serves until told to stop."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with TRANSPORTS[transport](files, largest) as ports:
        sys.stdout.write(json.dumps(ports._asdict()) + "\n")
        sys.stdout.flush()
        # Whoever started us holds the other end: when it dies, we do not stay.
        loop.add_reader(sys.stdin, ended.set)
        await ended.wait()
        loop.remove_reader(sys.stdin)


def main() -> None:
    """Runs on uvloop, as the product does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--largest", type=int, metavar="BYTES")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.transport, TlsFiles(options.certificate, options.key), options.largest))


if __name__ == "__main__":
    main()

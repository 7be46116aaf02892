"""The tested server, in a separate process: the interop test service on one of the transports.

    python -m tests.conformance.server --transport inprocess|grpcio --certificate FILE --key FILE [--max-message BYTES]

`--max-message` limits received messages; the default is the transport's. Prints one line of JSON with the ports for
plaintext and TLS, and serves until its standard input ends or it receives SIGTERM.
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
from tests.conformance import interop_service, probe_service

HOST = "127.0.0.1"


class Ports(NamedTuple):
    """Ports for plaintext and TLS; equal for Gantry, while grpcio needs two."""

    plain: int
    tls: int


@asynccontextmanager
async def inprocess(files: TlsFiles, max_message: int | None) -> AsyncIterator[Ports]:
    """Serve on Gantry's listener and transport, as in the product."""
    options = ServerOptions() if max_message is None else ServerOptions(max_receive_message=max_message)
    server = Server(options)
    _register(server)
    listen = ListenerOptions(name="conformance", address=HostPort(HOST, 0))
    listener = Listener(listen, {Protocol.GRPC: server.protocol}, TlsSource(files), lambda *_: None)
    await listener.start()
    try:
        port = listener.addresses[0].port
        yield Ports(port, port)
    finally:
        await listener.abort()
        await server.close()


@asynccontextmanager
async def grpcio(files: TlsFiles, max_message: int | None) -> AsyncIterator[Ports]:
    """Serve on grpc.aio's server, the reference."""
    server = grpc.aio.server(options=[] if max_message is None else [("grpc.max_receive_message_length", max_message)])
    _register(server)
    credentials = grpc.ssl_server_credentials([(files.key.read_bytes(), files.certificate.read_bytes())])
    ports = Ports(server.add_insecure_port(f"{HOST}:0"), server.add_secure_port(f"{HOST}:0", credentials))
    await server.start()
    try:
        yield ports
    finally:
        await server.stop(0)


def _register(server: interop_service.Registrar) -> None:
    interop_service.register(server)
    probe_service.register(server)


TRANSPORTS: dict[str, Callable[[TlsFiles, int | None], AbstractAsyncContextManager[Ports]]] = {
    "inprocess": inprocess,
    "grpcio": grpcio,
}


async def serve(transport: str, files: TlsFiles, max_message: int | None) -> None:
    """Serve until SIGTERM or the end of standard input."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with TRANSPORTS[transport](files, max_message) as ports:
        sys.stdout.write(json.dumps(ports._asdict()) + "\n")
        sys.stdout.flush()
        # The parent process has the other end, so the server ends with it.
        loop.add_reader(sys.stdin, ended.set)
        await ended.wait()
        loop.remove_reader(sys.stdin)


def main() -> None:
    """Serve on uvloop, as in the product."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--max-message", type=int, metavar="BYTES")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.transport, TlsFiles(options.certificate, options.key), options.max_message))


if __name__ == "__main__":
    main()

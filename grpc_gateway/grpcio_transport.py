"""grpcio's own server behind the same port: what our own is measured against.

It cannot take over a connection, so each is relayed to it over a private Unix socket. Its contexts get the
`connection` that ours have: the relay, which knows the real peer.
"""

import asyncio
import inspect
import itertools
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import grpc

from grpc_gateway.server import ServerOptions
from protocol_negotiation.peer import Peer
from remoting.tasks import spawn_quietly

_numbers = itertools.count(1)
# Bytes that wait to be written on one side at which the other is not read.
_HIGH_WATER = 256 * 1024
# How grpcio writes the address of a peer whose socket has an abstract name.
_ABSTRACT = "unix-abstract:"

OnRelay = Callable[["Relay"], None]


class GrpcioServer:
    """`grpc_gateway.server.Server` as far as the proxy needs it, with grpcio's transport. `start` it first."""

    def __init__(self, options: ServerOptions, on_open: OnRelay | None = None, on_close: OnRelay | None = None) -> None:
        self.connections: set[Relay] = set()
        self.calls_ended: Counter[tuple[str, grpc.StatusCode]] = Counter()
        self.closed: Counter[str] = Counter()
        self.open_calls = 0
        self.loop = asyncio.get_running_loop()
        self._on_open = on_open
        self._on_close = on_close
        self._by_name: dict[str, Relay] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="gantry-grpc-"))
        self.path = str(self._folder / "socket")
        self._server = grpc.aio.server(interceptors=(_Introduction(self),), options=_options(options))
        self._server.add_insecure_port(f"unix:{self.path}")

    # Registration, as grpc.aio.Server has it.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        self._server.add_generic_rpc_handlers(tuple(generic_rpc_handlers))

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        self._server.add_registered_method_handlers(service_name, dict(method_handlers))

    # Connections.

    async def start(self) -> None:
        """Serve what is relayed."""
        await self._server.start()

    def protocol(self, peer: Peer) -> "Relay":
        """The protocol for one connection: a `protocol_negotiation` handler."""
        return Relay(self, peer)

    @property
    def open_streams(self) -> int:
        return self.open_calls

    def calls(self) -> "Counter[tuple[str, grpc.StatusCode]]":
        """Calls that have ended, by method (``/package.Service/Method``) and code."""
        return self.calls_ended

    def opened(self, relay: "Relay") -> None:
        self.connections.add(relay)
        self._by_name[relay.name] = relay
        if self._on_open is not None:
            self._on_open(relay)

    def ended(self, relay: "Relay") -> None:
        if relay in self.connections:
            self.connections.discard(relay)
            del self._by_name[relay.name]
            self.closed[relay.cause] += 1
            if self._on_close is not None:
                self._on_close(relay)

    def relay_of(self, context: Any) -> "Relay | None":
        """The relay that a call came over."""
        return self._by_name.get(context.peer().removeprefix(_ABSTRACT))

    # The end.

    async def drain(self, grace: float) -> None:
        """Send all clients elsewhere (GOAWAY), let calls finish for `grace` seconds."""
        for relay in self.connections:
            relay.cause = "drain"
        await self._server.stop(grace)
        await self.close()

    async def close(self) -> None:
        """Close all connections now."""
        await self._server.stop(None)
        for relay in tuple(self.connections):
            relay.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _options(options: ServerOptions) -> list[tuple[str, int]]:
    timeouts, limits = options.timeouts, options.limits
    found = {
        "grpc.max_receive_message_length": options.max_receive_message,
        "grpc.max_send_message_length": options.max_send_message,
        "grpc.max_concurrent_streams": limits.concurrent_streams,
        "grpc.max_metadata_size": limits.header_list,
        # C++ clients ask every 60 s for a sign of life, with and without calls; by default that is an offence.
        "grpc.http2.min_recv_ping_interval_without_data_ms": int(limits.ping_interval * 1000),
        "grpc.http2.max_ping_strikes": limits.ping_strikes,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.keepalive_timeout_ms": int(timeouts.ping_timeout * 1000),
        "grpc.so_reuseport": 0,
    }
    if timeouts.ping_after is not None:
        found["grpc.keepalive_time_ms"] = int(timeouts.ping_after * 1000)
    if timeouts.idle is not None:
        found["grpc.max_connection_idle_ms"] = int(timeouts.idle * 1000)
    if timeouts.age is not None:
        found["grpc.max_connection_age_ms"] = int(timeouts.age * 1000)
        found["grpc.max_connection_age_grace_ms"] = int(timeouts.drain * 1000)
    return list(found.items())


class Relay(asyncio.Protocol):
    """One client's connection, byte by byte. `name` is what its other end calls itself towards grpcio."""

    def __init__(self, server: GrpcioServer, peer: Peer) -> None:
        self.peer = peer
        self.name = f"gantry-{os.getpid()}-{next(_numbers)}"
        self.cause = "peer"
        self.closed = False
        self.opened_at = self.read_at = server.loop.time()
        self.received_bytes = self.sent_bytes = self.requests = 0
        self._server = server
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._inner: _Inner | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._server.opened(self)
        spawn_quietly(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(f"\0{self.name}")
            await loop.sock_connect(inner, self._server.path)
            await loop.create_unix_connection(lambda: _Inner(self), sock=inner)
        except OSError:
            inner.close()
            self.close()

    def joined(self, inner: "_Inner") -> None:
        """grpcio is there."""
        if self.closed:
            inner.close()
            return
        self._inner = inner
        if self._early:
            inner.write(b"".join(self._early))
            self._early.clear()

    def data_received(self, data: bytes) -> None:
        self.read_at = self._server.loop.time()
        self.received_bytes += len(data)
        if self._inner is None:
            self._early.append(data)
        else:
            self._inner.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self.sent_bytes += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause(True)

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause(False)

    def pause(self, paused: bool) -> None:
        """Read no further, or on."""
        if self._transport is not None and not self.closed:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self.cause == "peer":
            self.cause = "reset"
        self._end()

    def drain(self) -> None:
        """grpcio sends nobody away but all at its end: this connection stays until its client leaves."""

    def close(self) -> None:
        """Close both sides; what is written goes out."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            if self._inner is not None:
                self._inner.close()
            self._server.ended(self)


class _Inner(asyncio.Protocol):
    """The other side of a relay: our connection to grpcio."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._relay.joined(self)

    def data_received(self, data: bytes) -> None:
        self._relay.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._relay.pause(True)

    def resume_writing(self) -> None:
        self._relay.pause(False)

    def pause(self, paused: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._relay.closed and self._relay.cause == "peer":
            self._relay.cause = "local"
        self._relay.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Context:
    """grpcio's context, with the `connection` that ours have."""

    def __init__(self, context: Any, connection: Relay) -> None:
        self._context = context
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _Introduction(grpc.aio.ServerInterceptor):
    """Gives each handler the context that knows its connection, and counts the calls."""

    def __init__(self, server: GrpcioServer) -> None:
        self._server = server

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        return None if handler is None else self._wrapped(handler, details.method)

    def _wrapped(self, handler: Any, method: str) -> Any:
        streams = (handler.request_streaming, handler.response_streaming)
        name, make = _KINDS[streams]
        behaviour = getattr(handler, name)
        wrap = self._generating if inspect.isasyncgenfunction(behaviour) else self._answering
        return make(wrap(behaviour, method), handler.request_deserializer, handler.response_serializer)

    def _answering(self, behaviour: Any, method: str) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            return await behaviour(request, self._context(context, method))

        return answer

    def _generating(self, behaviour: Any, method: str) -> Any:
        async def generate(request: Any, context: Any) -> AsyncIterator[Any]:
            async for response in behaviour(request, self._context(context, method)):
                yield response

        return generate

    def _context(self, context: Any, method: str) -> Any:
        server = self._server
        server.open_calls += 1
        context.add_done_callback(lambda done: self._count(done, method))
        relay = server.relay_of(context)
        if relay is None:
            return context
        relay.requests += 1
        return Context(context, relay)

    def _count(self, context: Any, method: str) -> None:
        self._server.open_calls -= 1
        code = context.code() or grpc.StatusCode.OK
        self._server.calls_ended[method, code] += 1


_KINDS: dict[tuple[bool, bool], tuple[str, Any]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}

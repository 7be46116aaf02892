"""Relaying of a client's connection to grpcio's server over a private Unix socket, byte by byte."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from typing import cast

from protocol_negotiation.peer import Peer
from remoting.tasks import spawn_quietly

_numbers = itertools.count(1)
# Bytes waiting to be written on one side at which reading from the other pauses.
_HIGH_WATER = 256 * 1024

OnRelay = Callable[["Relay"], None]


class Relay(asyncio.Protocol):
    """One client's connection.

    name: address of the private socket's client end, by which grpcio identifies the peer.
    cause: why the connection ends; until then "peer".
    requests: number of calls.
    read_at: time of the last read, in seconds of the event loop's clock.
    """

    def __init__(self, peer: Peer, server_path: str, on_open: OnRelay, on_close: OnRelay) -> None:
        self.peer = peer
        self.name = f"gantry-{os.getpid()}-{next(_numbers)}"
        self.cause = "peer"
        self.closed = False
        # The client may have been asked to reconnect.
        self.draining = False
        self._loop = asyncio.get_running_loop()
        self.opened_at = self.read_at = self._loop.time()
        self.received_bytes = self.sent_bytes = self.requests = 0
        self._server_path = server_path
        self._on_open = on_open
        self._on_close = on_close
        # Bytes received before the private connection is established.
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._upstream: _Upstream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._on_open(self)
        spawn_quietly(self._connect())

    async def _connect(self) -> None:
        upstream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            upstream.setblocking(False)
            upstream.bind(f"\0{self.name}")
            await self._loop.sock_connect(upstream, self._server_path)
            await self._loop.create_unix_connection(lambda: _Upstream(self), sock=upstream)
        except OSError:
            upstream.close()
            self.close()

    def connected(self, upstream: "_Upstream") -> None:
        """Begin to relay, as the private connection is established."""
        if self.closed:
            upstream.close()
            return
        self._upstream = upstream
        if self._early:
            upstream.write(b"".join(self._early))
            self._early.clear()

    def data_received(self, data: bytes) -> None:
        self.read_at = self._loop.time()
        self.received_bytes += len(data)
        if self._upstream is None:
            self._early.append(data)
        else:
            self._upstream.write(data)

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._transport is not None and not self.closed:
            self.sent_bytes += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause(True)

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause(False)

    def pause(self, paused: bool) -> None:
        """Pause or resume reading from the client."""
        if self._transport is not None and not self.closed:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self.cause == "peer":
            self.cause = "reset"
        self._end()

    def drain(self) -> None:
        """Record that the client is asked to reconnect; grpcio sends GOAWAY only when its whole server stops.

        The connection stays open until its client, `close` or `GrpcioServer.drain` ends it.
        """
        self.draining = True

    def close(self) -> None:
        """Close both connections once all written bytes are sent."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            if self._upstream is not None:
                self._upstream.close()
            self._on_close(self)


class _Upstream(asyncio.Protocol):
    """The private connection of a relay to grpcio's server."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._relay.connected(self)

    def data_received(self, data: bytes) -> None:
        self._relay.write(data)

    def write(self, data: bytes) -> None:
        """Send bytes to grpcio."""
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._relay.pause(True)

    def resume_writing(self) -> None:
        self._relay.pause(False)

    def pause(self, paused: bool) -> None:
        """Pause or resume reading from grpcio."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._relay.closed and self._relay.cause == "peer":
            self._relay.cause = "local"
        self._relay.close()

    def close(self) -> None:
        """Close the connection once all written bytes are sent."""
        if self._transport is not None:
            self._transport.close()

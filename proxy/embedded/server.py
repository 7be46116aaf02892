"""The embedded broker on a socket: name server and broker in one, for official clients and tools."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio

from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import TlsMode
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.remoting_channel import RemotingChannel
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.request import Reply
from remoting.command import RemotingCommand
from remoting.connection import CloseCause, Handler, RemotingConnection
from remoting.flow_control import Limits
from remoting.timeout_wheel import TimeoutWheel, ticking

# Seconds that a client has to answer the broker.
_CLIENT_TIMEOUT = 5.0
# Seconds without a byte after which a connection is given up.
_IDLE = 120.0
_SWEEP = 5.0
# Seconds that connections get to end, and between looks whether they have.
_FAREWELL = 1.0
_POLL_INTERVAL = 0.01


class BrokerChannel(RemotingChannel):
    """A client that is connected to the broker itself."""

    __slots__ = ()


def push_via(relay: Push) -> Push:
    """Ask a client: one that is connected here directly, any other through `relay`."""

    def push(channel: Channel, command: RemotingCommand) -> Reply | None:
        if not isinstance(channel, BrokerChannel):
            return relay(channel, command)
        if command.is_oneway:
            channel.oneway(command)
            return None
        return channel.request(command, _CLIENT_TIMEOUT)

    return push


def close_silent(channel: Channel) -> None:
    """Close the connection of a client that has gone silent."""
    if isinstance(channel, BrokerChannel):
        channel.close(CloseCause.IDLE)


class Server:
    """A backend's broker on an address: `run` it while it is `serving`. Its pushes must go through `pushing`."""

    def __init__(self, backend: EmbeddedBackend, address: HostPort) -> None:
        loop = asyncio.get_running_loop()
        self._backend = backend
        self._wheel = TimeoutWheel(loop.time)
        self.channels: set[BrokerChannel] = set()
        # gRPC clients are for the proxy: here they are refused as unknown.
        handlers: Handlers = {Protocol.REMOTING: self._accept, Protocol.HTTP1: Http1Rejector}
        options = ListenerOptions(name="embedded", address=address, tls_mode=TlsMode.DISABLED)
        self._listener = Listener(options, handlers, None, _forget)

    @property
    def addresses(self) -> Sequence[HostPort]:
        """Where it listens."""
        return self._listener.addresses

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listens inside; at the end all connections are closed. Raises OSError where it cannot listen."""
        await self._listener.start()
        try:
            with ticking(self._wheel):
                yield
        finally:
            await self._listener.abort()
            for channel in list(self.channels):
                channel.close(CloseCause.DRAIN)
            with anyio.move_on_after(_FAREWELL, shield=True):
                while self.channels:
                    await anyio.sleep(_POLL_INTERVAL)

    async def run(self) -> None:
        """Close connections that have been silent for too long, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP)
            self._sweep()

    def _accept(self, peer: Peer) -> BrokerChannel:
        channel = BrokerChannel(self._wheel, cast(Handler, self._handle), self._closed, peer, Limits())
        self.channels.add(channel)
        return channel

    def _handle(self, channel: BrokerChannel, command: RemotingCommand) -> Reply | None:
        return self._backend.handle(channel, command)

    def _closed(self, connection: RemotingConnection) -> None:
        channel = cast(BrokerChannel, connection)
        self.channels.discard(channel)
        self._backend.broker.channel_closed(channel)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for channel in list(self.channels):
            if now - channel.read_at > _IDLE and not channel.in_flight:
                channel.close(CloseCause.IDLE)


def _forget(_: Outcome, __: object, ___: bytes) -> None:
    """Nobody counts how connections begin here."""

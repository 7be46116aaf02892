"""A listener for the embedded broker alone: name server and broker at one address, without the proxy's checks.

It is the private socket of the other workers, whose clients have passed the checks there. Clients, tools and other
replicas use the listener of `proxy.frontends.listeners.broker_listener`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio

from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import TlsMode
from proxy.core.backend import Push, unchecked
from proxy.core.channel import Channel
from proxy.core.remoting_channel import BrokerChannel
from proxy.core.unanswered import CLIENT_TIMEOUT
from proxy.embedded.backend import EmbeddedBackend
from remoting.close_cause import CloseCause
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.flow_control import SHARED_LIMITS
from remoting.outcomes import Reply
from remoting.tasks import every
from remoting.timeout_wheel import TimeoutWheel, ticking

# Seconds without a byte after which a connection is closed, and between checks.
_IDLE_TIMEOUT = 120.0
_IDLE_CHECK_INTERVAL = 5.0
# Seconds for the rest of an unfinished frame; see RemotingConnection.check_unfinished_frame.
_FRAME_TIMEOUT = 30.0
# Seconds for connections to close at the end, and between checks.
_CLOSE_TIMEOUT = 1.0
_POLL_INTERVAL = 0.01


class WorkerChannel(BrokerChannel):
    """The connection of another worker, which itself checks the requests that its clients receive."""

    __slots__ = ()


def push_via(relay: Push, check: Callable[[Push], Push] = unchecked) -> Push:
    """Return a push that sends to clients of the broker's listeners directly, and to others through `relay`.

    check: adds the checks of requests to clients of the broker's public listener.
    """
    checked = check(_send)

    def push(channel: Channel, command: RemotingCommand) -> Reply | None:
        if not isinstance(channel, BrokerChannel):
            return relay(channel, command)
        return _send(channel, command) if isinstance(channel, WorkerChannel) else checked(channel, command)

    return push


def _send(channel: Channel, command: RemotingCommand) -> Reply | None:
    if command.is_oneway:
        channel.oneway(command)
        return None
    return channel.request(command, CLIENT_TIMEOUT)


def close_silent(channel: Channel) -> None:
    """Close the connection of a client whose heartbeats have stopped, if it is one of the broker's listener."""
    if isinstance(channel, BrokerChannel):
        channel.close(CloseCause.IDLE)


class Server:
    """A listener for a backend's broker. `run` must run while it is `serving`; pushes must go through `push_via`."""

    def __init__(self, backend: EmbeddedBackend, address: HostPort) -> None:
        loop = asyncio.get_running_loop()
        self._backend = backend
        self._wheel = TimeoutWheel(loop.time)
        self.channels: set[WorkerChannel] = set()
        # gRPC clients belong to the proxy: here they are rejected as an unknown protocol.
        handlers: Handlers = {Protocol.REMOTING: self._accept, Protocol.HTTP1: Http1Rejector}
        options = ListenerOptions(name="embedded", address=address, tls_mode=TlsMode.DISABLED)
        self._listener = Listener(options, handlers, None, _ignore_outcome)

    @property
    def addresses(self) -> Sequence[HostPort]:
        """The addresses that it listens on."""
        return self._listener.addresses

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen inside the context, and close all connections at its end. Raises OSError if it cannot listen."""
        await self._listener.start()
        try:
            with ticking(self._wheel):
                yield
        finally:
            await self._listener.abort()
            for channel in list(self.channels):
                channel.close(CloseCause.DRAIN)
            with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                while self.channels:
                    await anyio.sleep(_POLL_INTERVAL)

    async def run(self) -> None:
        """Close idle connections, until cancelled."""
        await every(_IDLE_CHECK_INTERVAL, self._close_idle, name="idle connections of other workers")

    def _accept(self, peer: Peer) -> WorkerChannel:
        channel = WorkerChannel(self._wheel, cast(Handler, self._handle), self._closed, peer, SHARED_LIMITS)
        self.channels.add(channel)
        return channel

    def _handle(self, channel: WorkerChannel, command: RemotingCommand) -> Reply | None:
        return self._backend.handle(channel, command)

    def _closed(self, connection: RemotingConnection) -> None:
        channel = cast(WorkerChannel, connection)
        self.channels.discard(channel)
        self._backend.broker.channel_closed(channel)

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for channel in list(self.channels):
            if now - channel.read_at > _IDLE_TIMEOUT and not channel.in_flight:
                channel.close(CloseCause.IDLE)
            else:
                channel.check_unfinished_frame(_FRAME_TIMEOUT)


def _ignore_outcome(_: Outcome, __: object, ___: bytes) -> None:
    """Negotiations of this listener are not counted."""

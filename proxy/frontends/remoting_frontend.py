"""The remoting frontend: client connections that speak remoting, from acceptance to drain.

Connections are asyncio protocols; anyio only provides sleeps and time limits here.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import anyio

from protocol_negotiation import standstill
from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer
from proxy.core import connections, membership
from proxy.core.connections import ConnectionListener
from proxy.core.empty_poll import empty_poll
from proxy.core.long_poll import answer_polls, cancel_polls
from proxy.core.messaging import Entrance, Messaging
from proxy.core.principal import Principal
from proxy.core.remoting_channel import BrokerChannel, RemotingChannel
from proxy.settings.limits import LimitSettings
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.namespaced_channel import NamespacedBrokerChannel, NamespacedChannel
from proxy.traffic_rules.user_names import NamesOfUser
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import GO_AWAY_VERSION
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import GoAway
from remoting.flow_control import Limits
from remoting.loop_turns import LoopTurns
from remoting.memory_watch import UNWATCHED, MemoryWatch
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from remoting.tasks import every, isolated, spawn_quietly
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.remoting")

# Seconds between sweeps of idle connections and of members without heartbeats.
_SWEEP_INTERVAL = 5.0
# Maximum seconds for which a drain answers requests with GO_AWAY before it stops reading.
_GO_AWAY_SECONDS = 1.0
# Timeout in seconds for closing connections and unregistering their clients at the brokers.
_CLOSE_TIMEOUT = 1.0
_ENDING = "this replica is going away"
# Seconds at the limit of in-flight requests after which a connection's long polls are answered. Otherwise its other
# requests, and its end, would wait behind them unread.
_FULL_TIMEOUT = 5.0
_FULL = "too many requests of this connection are in flight"
# Seconds between checks whether a drain is complete.
_POLL_INTERVAL = 0.05


class RemotingFrontend:
    """The open remoting connections of a replica.

    names: returns the name mapping of a client's connection, or that of each user, or None. on_protocol_error: called
    with the peer, the reason and the bytes of a frame that cannot be decoded. memory: counts the bytes that all
    connections hold. authenticate: returns the sender of a request, as the client sent it; None: authentication is
    off. turns: those of all clients' connections.
    """

    def __init__(
        self,
        core: Messaging,
        wheel: TimeoutWheel,
        limits: LimitSettings,
        connection_listeners: Sequence[ConnectionListener],
        names: Callable[[Peer], NameMapping | NamesOfUser | None],
        memory: MemoryWatch = UNWATCHED,
        authenticate: Callable[[RemotingCommand, Peer], Principal] | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        self.channels: set[RemotingChannel] = set()
        # Connections to the embedded broker itself.
        self.broker_channels: set[RemotingChannel] = set()
        self._memory = memory
        self.on_protocol_error: Callable[[Peer, str, bytes], None] | None = None
        self._core = core
        self._wheel = wheel
        self._limits = _connection_limits(limits)
        self._connection_listeners = connection_listeners
        self._names = names
        self._authenticate = authenticate
        self._turns = turns
        # Clients whose connections have closed and that are still being unregistered at the brokers.
        self._leaving: set[asyncio.Task[None]] = set()
        # Turns of the departures of closed clients, each of which may be in a thousand groups.
        self._departures = LoopTurns()

    def apply(self, limits: LimitSettings) -> None:
        """Use these limits for new connections."""
        self._limits = _connection_limits(limits)

    def accept(self, peer: Peer) -> RemotingChannel:
        """Return the protocol of a new connection."""
        # The core accepts any channel; connections made here are channels.
        handler = cast(Handler, self._core.handle)
        names = self._names(peer)
        if names is None:
            channel = RemotingChannel(self._wheel, handler, self._closed, peer, self._limits, self._turns)
        else:
            channel = NamespacedChannel(self._wheel, handler, self._closed, peer, self._limits, names, self._turns)
        self.channels.add(channel)
        return self._opened(channel)

    def accept_at_broker(
        self, entrance: Entrance, on_close: Callable[[RemotingChannel], None], peer: Peer
    ) -> RemotingChannel:
        """Return the protocol of a new connection to the embedded broker.

        Its requests pass the same checks as those of other clients, but the broker serves them and knows its members.
        """
        names = self._names(peer)
        closed = partial(self._broker_channel_closed, on_close)
        channel: RemotingChannel
        if names is None:
            handler = cast(Handler, partial(self._core.handle, entrance=entrance))
            channel = BrokerChannel(self._wheel, handler, closed, peer, self._limits, self._turns)
        else:
            if isinstance(names, NameMapping):
                # Names in requests of other codes cannot be rewritten. `UserNames` rejects these.
                entrance = replace(entrance, requests=REQUESTS)
            handler = cast(Handler, partial(self._core.handle, entrance=entrance))
            channel = NamespacedBrokerChannel(self._wheel, handler, closed, peer, self._limits, names, self._turns)
        self.broker_channels.add(channel)
        return self._opened(channel)

    def _opened(self, channel: RemotingChannel) -> RemotingChannel:
        if self._authenticate is not None:
            # Before names are rewritten: the signature covers the client's.
            channel.handler = cast(Handler, partial(_serve_authenticated, self._authenticate, channel.handler))
        channel.on_protocol_error = self.on_protocol_error
        channel.memory = self._memory
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.opened("remoting", channel))
        return channel

    def _broker_channel_closed(
        self, on_close: Callable[[RemotingChannel], None], connection: RemotingConnection
    ) -> None:
        on_close(self._forget(self.broker_channels, connection))

    def _closed(self, connection: RemotingConnection) -> None:
        channel = self._forget(self.channels, connection)
        if self._core.registry.member(channel) is not None:
            leaving = spawn_quietly(self._leave(channel))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _forget(self, channels: set[RemotingChannel], connection: RemotingConnection) -> RemotingChannel:
        """Forget a closed connection and its polls, and notify the listeners."""
        channel = cast(RemotingChannel, connection)
        channels.discard(channel)
        cancel_polls(channel)
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.remoting_closed(channel))
        return channel

    async def _leave(self, channel: RemotingChannel) -> None:
        await self._departures.next()
        await membership.leave(self._core, channel)

    async def run(self) -> None:
        """Close idle and dripping connections, end polls of full ones, and remove silent members, until cancelled."""
        await every(self._sweep_interval, self._sweep, name="expiry of remoting clients", sleep=standstill.sleep)

    def _sweep_interval(self) -> float:
        return min(_SWEEP_INTERVAL, self._core.settings.limits.idle_timeout / 2)

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        limits = self._core.settings.limits
        for channel in (*self.channels, *self.broker_channels):
            # A client that waits for a long poll sends nothing.
            if now - channel.read_at > limits.idle_timeout and not channel.in_flight:
                isolated(channel.close, CloseCause.IDLE)
            elif channel.was_reset:
                isolated(channel.abort, CloseCause.RESET)
            else:
                if channel.full_since is not None and now - channel.full_since > _FULL_TIMEOUT:
                    isolated(_make_room, channel)
                isolated(channel.check_unfinished_frame, limits.frame_timeout)
                isolated(channel.check_unread_responses, limits.unread_timeout)
        await membership.expire(self._core, now)

    async def finish_requests(self, timeout: float) -> None:
        """Answer requests with GO_AWAY for a while, then close each connection once its requests are answered.

        Clients that do not support GO_AWAY are served until then. Long polls are not waited for: they are answered
        with "no message found", since Go clients do not fail their pending pulls when a connection closes. `timeout`
        in seconds.
        """
        if self.channels:
            await anyio.sleep(min(_GO_AWAY_SECONDS, timeout / 2))
        paused: set[RemotingChannel] = set()
        ending: set[RemotingChannel] = set()
        with anyio.move_on_after(timeout):
            while self._close_idle(paused, ending) or self._core.active_requests:
                await anyio.sleep(_POLL_INTERVAL)
        if late := [channel for channel in self.channels if channel.cause is None and channel not in ending]:
            for channel in late:
                _end_requests(channel, channel in paused)
            # Time to read and answer the pulls that came while reads were paused.
            await anyio.sleep(_POLL_INTERVAL)

    def _close_idle(self, paused: set[RemotingChannel], ending: set[RemotingChannel]) -> bool:
        """Close the connections without requests other than long polls; return whether some are left.

        paused: connections that are not read until their requests in flight are answered. ending: connections that
        are read a last time.
        """
        channels = [channel for channel in self.channels if channel.cause is None]
        for channel in channels:
            if channel in ending:
                if not channel.waiting_frames:
                    channel.close(CloseCause.DRAIN)
            elif channel.in_flight > len(channel.session.polls):
                if channel not in paused:
                    paused.add(channel)
                    channel.pause()
            else:
                _end_requests(channel, channel in paused)
                if channel in paused or channel.waiting_frames:
                    ending.add(channel)
                else:
                    # After the callbacks that write the answers.
                    channel.loop.call_soon(channel.close, CloseCause.DRAIN)
        return bool(channels)

    async def close(self) -> None:
        """Close all connections and wait until their clients are unregistered at the brokers, with a timeout."""
        for channel in list(self.channels):
            channel.close(CloseCause.DRAIN)
        with anyio.move_on_after(_CLOSE_TIMEOUT):
            while self.channels or self._leaving:
                await anyio.sleep(_POLL_INTERVAL)

    async def close_broker_channels(self) -> None:
        """Stop reading the connections to the embedded broker, answer their requests and close them, with a timeout."""
        for channel in self.broker_channels:
            channel.pause()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            while any(len(channel.session.polls) < channel.in_flight for channel in self.broker_channels):
                await anyio.sleep(_POLL_INTERVAL)
        for channel in list(self.broker_channels):
            channel.close(CloseCause.DRAIN)
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            while self.broker_channels:
                await anyio.sleep(_POLL_INTERVAL)


def _end_requests(channel: RemotingChannel, paused: bool) -> None:
    """Answer the long polls of a connection that is about to close, and those that it still receives."""
    channel.handler = cast(Handler, _serve_ending)
    if paused:
        channel.resume()
    answer_polls(channel, _ENDING)


def _make_room(channel: RemotingChannel) -> None:
    """Answer the long polls of a connection that has stayed at its limit of in-flight requests."""
    ended = answer_polls(channel, _FULL)
    if ended and not channel.ended_polls:
        _log.info("%s has %d requests in flight: answering its long polls", channel.peer.address, channel.in_flight)
    channel.ended_polls += ended


def _serve_ending(channel: RemotingChannel, command: RemotingCommand) -> None:
    """Answer a long poll with "no message found", at once; leave other requests to the retries of their client.

    Raises GoAway for clients that support it.
    """
    if command.version > GO_AWAY_VERSION:
        raise GoAway(_ENDING)
    spec = REQUESTS.get(command.code)
    if spec is not None and spec.poll is not None and not command.is_oneway:
        reply = empty_poll(spec, command.fields, _ENDING)
        channel.send(commands.answer(reply, command.opaque, command.serialize_type))


def _serve_authenticated(
    authenticate: Callable[[RemotingCommand, Peer], Principal],
    handler: Handler,
    channel: RemotingChannel,
    command: RemotingCommand,
) -> Reply | None:
    channel.principal = authenticate(command, channel.peer)
    return handler(channel, command)


def _connection_limits(limits: LimitSettings) -> Limits:
    return Limits(
        limits.requests, limits.waiting, limits.request_bytes, limits.buffer, limits.hard_buffer, limits.frame
    )

"""The composition root: builds everything from the settings and runs it until told to stop."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import cast

import anyio
import anyio.to_thread

from protocol_negotiation.advertise import in_container, unreachable
from protocol_negotiation.detect import Protocol
from protocol_negotiation.http1 import Http1Refusal
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.tls import Refresh, TlsMode, TlsSource
from proxy import membership
from proxy import metrics as prometheus
from proxy.addresses import AddressBook, Door
from proxy.checks import well_formed
from proxy.clients import Change, ClientRegistry
from proxy.cluster.backend import ClusterBackend
from proxy.config import ListenSettings, Settings
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.node import Node
from proxy.forwarding import forward
from proxy.grpc_service import GrpcService
from proxy.handlers import HANDLERS
from proxy.messaging import Messaging
from proxy.metrics import Metrics
from proxy.relay import relay
from proxy.remoting_channel import RemotingChannel
from proxy.sync.exchange import Exchange
from proxy.sync.topic import SyncTopic
from remoting.connection import CloseCause, Handler, Limits, RemotingConnection
from remoting.errors import RemotingError
from remoting.tasks import spawn_quietly
from remoting.wheel import TimeoutWheel

_log = logging.getLogger("gantry")

# Seconds between looks for clients that have gone silent.
_SWEEP = 5.0
# Seconds in which clients that know GO_AWAY are told it.
_GO_AWAY_TIME = 1.0
# Seconds between looks whether a drain is complete.
_GLANCE = 0.05


class App:
    """One replica, before a cluster or with a broker of its own.

    Raises StorageError (proxy.embedded.store) where that broker's directory cannot be had.
    """

    def __init__(self, settings: Settings) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.metrics = Metrics()
        self.registry = ClientRegistry(settings.client_expiry)
        self.channels: set[RemotingChannel] = set()
        self._wheel = TimeoutWheel(loop.time)
        self._limits = Limits(
            settings.limits.requests,
            settings.limits.waiting,
            settings.limits.request_bytes,
            settings.limits.buffer,
            settings.limits.hard_buffer,
            settings.limits.frame,
        )
        self.core = Messaging(
            settings,
            self.registry,
            HANDLERS,
            forward,
            (well_formed,),
            (self.metrics.observe,),
            (membership.notify, self._count_change, self._announce),
            AddressBook(),
        )
        self.grpc = GrpcService(self.core, settings, self.metrics)
        self._exchange: Exchange | None = None
        files = settings.tls.files
        self._tls = None if files is None else TlsSource(files)
        self._listeners = [self._listener(item) for item in settings.listen]
        # Departures that brokers and other proxies have still to be told of.
        self._leaving: set[asyncio.Task[None]] = set()
        # Last: nothing that fails after it leaves a store open.
        directory = settings.embedded.directory
        self._node = None if directory is None else Node(settings, directory)
        self.backend: ClusterBackend | EmbeddedBackend = (
            ClusterBackend(settings.cluster, self._wheel, relay) if self._node is None else self._node.backend
        )
        self.core.backend = self.backend
        self._watch()

    @property
    def addresses(self) -> list[HostPort]:
        """The bound addresses of all listeners."""
        return [address for listener in self._listeners for address in listener.addresses]

    async def serve(self, ready: Callable[[], None], stop: Callable[[], Awaitable[object]]) -> None:
        """Serve until `stop` returns; `ready` is called once clients are accepted.

        Raises OSError, TlsError, and StorageError where what was written could not be kept.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(self._ticking())
            if self.settings.metrics_listen is not None:
                stack.callback(prometheus.serve(self.metrics, self.settings.metrics_listen))
            stack.callback(self.backend.close)
            await self.backend.start()
            await self.grpc.start()
            server = None if self._node is None else self._node.server
            if server is not None:
                await stack.enter_async_context(server.serving())
                _log.info("the embedded broker listens on %s", ", ".join(map(str, server.addresses)))
            await self._open()
            ready()
            async with anyio.create_task_group() as group:
                group.start_soon(self.backend.run)
                group.start_soon(self._sweep)
                group.start_soon(self._reload_certificates)
                group.start_soon(self.grpc.run)
                if server is not None:
                    group.start_soon(server.run)
                if self._exchange is not None:
                    group.start_soon(self._exchange.run)
                await stop()
                await self._drain()
                group.cancel_scope.cancel()

    async def _open(self) -> None:
        for listener in self._listeners:
            await listener.start()
        doors = [
            Door(listener.addresses[0].port, item.advertised, item.broker, listener.options.name)
            for item, listener in zip(self.settings.listen, self._listeners, strict=True)
        ]
        self.core.addresses = AddressBook(doors)
        contained = in_container(os.environ)
        own = _own_addresses()
        for listener in self._listeners:
            warning = unreachable(
                listener.options.advertise, listener.options.address, contained=contained, own_addresses=own
            )
            if warning is not None:
                _log.warning("%s", warning)
            _log.info("listening on %s", ", ".join(map(str, listener.addresses)))
        if self.settings.shared:
            self._exchange = self._new_exchange()

    def _new_exchange(self) -> Exchange:
        port = self._listeners[0].addresses[0].port
        # In the form of the official proxies' ids: host, remoting port, gRPC port; here they are one.
        replica = f"{self.settings.replica or socket.gethostname()}%{port}%{port}"
        topic = SyncTopic(self.backend, self.settings.sync.topic)
        return Exchange(topic, self.registry, replica, asyncio.get_running_loop().time, self.core.changed)

    def _listener(self, item: ListenSettings) -> Listener:
        handlers: Handlers = {
            Protocol.REMOTING: self._accept,
            Protocol.GRPC: self.grpc.server.protocol,
            Protocol.HTTP1: Http1Refusal,
        }
        mode = self.settings.tls.mode if item.tls and self._tls is not None else TlsMode.DISABLED
        options = ListenerOptions(
            name=item.name or item.address,
            address=HostPort.parse(item.address),
            advertise=item.advertised,
            broker=item.broker,
            tls_mode=mode,
            trusted_proxies=tuple(item.trusted_proxies),
            negotiation_timeout=self.settings.limits.negotiation_timeout,
            max_connections=item.max_connections,
        )
        return Listener(options, handlers, self._tls, self._count_outcome)

    # Connections.

    def _accept(self, peer: Peer) -> RemotingChannel:
        # The core takes any channel; a connection made here is one.
        handler = cast(Handler, self.core.handle)
        channel = RemotingChannel(self._wheel, handler, self._closed, peer, self._limits)
        self.channels.add(channel)
        return channel

    def _closed(self, connection: RemotingConnection) -> None:
        channel = cast(RemotingChannel, connection)
        self.channels.discard(channel)
        self.metrics.closed[str(channel.cause)] += 1
        if self.registry.member(channel) is not None:
            leaving = spawn_quietly(membership.leave(self.core, channel))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _sweep(self) -> None:
        """Close connections that have been silent for too long, let clients go whose heartbeats stopped."""
        loop = asyncio.get_running_loop()
        while True:
            await anyio.sleep(min(_SWEEP, self.settings.limits.idle_timeout / 2))
            now = loop.time()
            for channel in list(self.channels):
                # Somebody who waits for a long poll has every reason to be silent.
                if now - channel.read_at > self.settings.limits.idle_timeout and not channel.under_way:
                    channel.close(CloseCause.IDLE)
            membership.expire(self.core, now)

    async def _drain(self) -> None:
        """Accept nobody new, send clients elsewhere, let what is under way finish.

        Clients that do not know GO_AWAY are served until everything else has finished.
        """
        for listener in self._listeners:
            await listener.close()
        self.core.drain.start()
        async with anyio.create_task_group() as group:
            group.start_soon(self.grpc.drain, self.settings.drain_timeout)
            await self._drain_remoting()
        if self._exchange is not None:
            with anyio.move_on_after(1.0), contextlib.suppress(RemotingError):
                await self._exchange.flush()

    async def _drain_remoting(self) -> None:
        await anyio.sleep(min(_GO_AWAY_TIME, self.settings.drain_timeout / 2))
        for channel in self.channels:
            channel.pause()
        with anyio.move_on_after(self.settings.drain_timeout):
            while self.core.busy:
                await anyio.sleep(_GLANCE)
        for listener in self._listeners:
            await listener.abort()
        for channel in list(self.channels):
            channel.close(CloseCause.DRAIN)
        with anyio.move_on_after(1.0):
            while self.channels or self._leaving:
                await anyio.sleep(_GLANCE)

    async def _reload_certificates(self) -> None:
        while self._tls is not None:
            await anyio.sleep(self.settings.tls.reload_interval)
            if await anyio.to_thread.run_sync(self._tls.refresh) is Refresh.FAILED:
                _log.error("the changed TLS certificate is not usable, the former stays in use: %s", self._tls.error)

    @contextmanager
    def _ticking(self) -> Iterator[None]:
        """Drive the timeout wheel."""
        loop = asyncio.get_running_loop()
        handle = loop.call_later(self._wheel.tick, lambda: tick())

        def tick() -> None:
            nonlocal handle
            # First: whatever happens, the next tick comes.
            handle = loop.call_later(self._wheel.tick, tick)
            self._wheel.advance()

        try:
            yield
        finally:
            handle.cancel()

    # Counting.

    def _count_outcome(self, outcome: Outcome, _peer: object, _first: bytes) -> None:
        self.metrics.negotiations[outcome.value] += 1

    def _announce(self, _: Messaging, change: Change) -> None:
        if self._exchange is not None:
            self._exchange.tell(change)

    def _count_change(self, _: Messaging, change: Change) -> None:
        self.metrics.changes["joined" if change.joined else "left"] += 1

    def _watch(self) -> None:
        metrics = self.metrics
        metrics.gauge("gantry_connections", "Open remoting connections.", lambda: len(self.channels))
        metrics.gauge(
            "gantry_clients",
            "Clients in the registry, those behind other proxies included.",
            lambda: len(self.registry),
        )
        metrics.gauge("gantry_request_bytes", "Bodies of requests under way.", lambda: self.core.budget.used)
        if isinstance(self.backend, ClusterBackend):
            diverted = self.backend.diverted
            metrics.counter("gantry_diverted", "Requests that could not go where they belong.", "reason", diverted)
        if self._node is not None:
            self._node.watch(metrics)


def _own_addresses() -> list[str]:
    """This host's addresses, as far as its name leads to them."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        return []

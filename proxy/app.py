"""The composition root: builds everything from the settings and runs it until told to stop."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from protocol_negotiation.advertised_address import in_container, reachability_warning
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.tls import Refresh, TlsMode, TlsSource
from proxy.admin.http.admin_api import AdminApi
from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.embedded_node import Node
from proxy.core import connections, membership
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from proxy.core.checks import Tools, well_formed
from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange
from proxy.core.connections import ConnectionListener
from proxy.core.forwarding import forward
from proxy.core.handlers import HANDLERS
from proxy.core.messaging import Messaging
from proxy.core.push_relay import relay
from proxy.core.remoting_channel import RemotingChannel
from proxy.embedded.backend import EmbeddedBackend
from proxy.frontends import http_health
from proxy.frontends.grpc_frontend import GrpcFrontend
from proxy.observability import logs
from proxy.observability import metrics as prometheus
from proxy.observability.metrics import Metrics
from proxy.observability.metrics.core_gauges import register as register_core_gauges
from proxy.observability.metrics.server_push import CountedPush
from proxy.observability.metrics.transactions import CountedTransactions
from proxy.operations.services import AdminServices
from proxy.replication.heartbeat_sync import HeartbeatSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.listen import ListenSettings
from proxy.settings.loading import Sources
from proxy.settings.model import Settings
from proxy.traffic_rules.engine import RuleEngine
from proxy.traffic_rules.namespaced_channel import NamespacedChannel
from remoting.codes import RequestCode
from remoting.connection import CloseCause, Handler, RemotingConnection
from remoting.errors import RemotingError
from remoting.flow_control import Limits
from remoting.tasks import spawn_quietly
from remoting.timeout_wheel import TimeoutWheel, ticking

if TYPE_CHECKING:
    from proxy.admin.grpc.server import AdminServer
    from proxy.observability.records.recorder import Recorder
    from proxy.observability.tracing.tracing import Tracing

_log = logging.getLogger("gantry")

# Seconds between looks for clients that have gone silent.
_SWEEP = 5.0
# Seconds in which clients that know GO_AWAY are told it.
_GO_AWAY_TIME = 1.0
# Seconds for connections to close and brokers to hear of it.
_FAREWELL_TIME = 1.0
# Seconds between looks whether a drain is complete.
_POLL_INTERVAL = 0.05


class App:
    """One replica, before a cluster or with a broker of its own.

    Raises StorageError (proxy.embedded.store) if the embedded broker's directory cannot be opened, TrafficError
    (proxy.observability.records.errors) if traffic records cannot be kept as the settings ask, RulesError
    (proxy.traffic_rules.parsing) if the traffic rules are invalid. worker: number of this process among several
    workers.
    """

    def __init__(self, settings: Settings, sources: Sources | None = None, worker: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self._worker = worker
        self.metrics = Metrics(
            settings.metrics,
            settings.replica or socket.gethostname(),
            "cluster" if settings.embedded.directory is None else "local",
        )
        self.registry = ClientRegistry(settings.client_expiry)
        self.channels: set[RemotingChannel] = set()
        self._wheel = TimeoutWheel(loop.time)
        self._limits = _limits(settings)
        self.tracing = _trace(settings)
        transactions = CountedTransactions(forward)
        self.metrics.add(transactions.read)
        self.core = Messaging(
            settings,
            self.registry,
            {**HANDLERS, RequestCode.END_TRANSACTION: transactions},
            forward,
            (well_formed, Tools(settings.permitted_tools), *(() if self.tracing is None else (self.tracing.begin,))),
            (self.metrics.observe, *logs.observers(settings.logs)),
            (membership.notify, self._count_change, self._announce),
            ListenerRoutes(),
        )
        self.rules = RuleEngine(self.core, settings.rules, self.metrics)
        # Told of every client's connection, remoting or gRPC.
        self.connection_listeners: list[ConnectionListener] = [
            self.metrics.connections,
            logs.connection_ended,
            self.rules.connections.on_connection_event,
        ]
        self.traffic = self._record(settings)
        self.grpc = GrpcFrontend(
            self.core, settings, self.metrics, self.connection_listeners, self.rules.resource_names
        )
        self._heartbeat_sync: HeartbeatSync | None = None
        self.admin_services = AdminServices(self, sources)
        self.admin = AdminApi(self.admin_services)
        self.admin_grpc = self._serve_admin_grpc()
        files = settings.tls.files
        self._tls = None if files is None else TlsSource(files)
        self._listeners = [self._listener(item) for item in settings.listen]
        # Departures that brokers and other proxies have still to be told of.
        self._leaving: set[asyncio.Task[None]] = set()
        # Last: nothing that fails after it leaves a store open.
        directory = settings.embedded.directory
        pushes = CountedPush(relay)
        self.metrics.add(pushes.read)
        self._node = None if directory is None else Node(settings, directory, pushes)
        self.backend: ClusterBackend | EmbeddedBackend = (
            ClusterBackend(settings.cluster, self._wheel, pushes, self.metrics.upstreams)
            if self._node is None
            else self._node.backend
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
            stack.enter_context(ticking(self._wheel))
            stack.enter_context(self.metrics.running())
            if self.traffic is not None:
                self.traffic.start()
                stack.push_async_callback(self.traffic.close)
            if self.tracing is not None:
                stack.push_async_callback(anyio.to_thread.run_sync, self.tracing.close)
            if self.settings.metrics_listen is not None:
                stack.callback(prometheus.serve(self.metrics, self.settings.metrics_listen))
            stack.callback(self.backend.close)
            stack.callback(self.rules.connections.close)
            await self.backend.start()
            await self.grpc.start()
            server = None if self._node is None else self._node.server
            if server is not None:
                await stack.enter_async_context(server.serving())
                _log.info("the embedded broker listens on %s", ", ".join(map(str, server.addresses)))
            if self.admin_grpc is not None:
                await self.admin_grpc.open()
            self.admin.open()
            stack.callback(self.admin.release)
            await self._open()
            ready()
            async with anyio.create_task_group() as group:
                group.start_soon(self.backend.run)
                group.start_soon(self._sweep)
                group.start_soon(self._reload_certificates)
                group.start_soon(self.grpc.run)
                group.start_soon(self.rules.run)
                group.start_soon(self.admin.run)
                if self.admin_grpc is not None:
                    group.start_soon(self.admin_grpc.run)
                if server is not None:
                    group.start_soon(server.run)
                if self._heartbeat_sync is not None:
                    group.start_soon(self._heartbeat_sync.run)
                await stop()
                await self._drain()
                if self.admin_grpc is not None:
                    await self.admin_grpc.close()
                await self.admin.close()
                group.cancel_scope.cancel()

    async def _open(self) -> None:
        try:
            for listener in self._listeners:
                await _start(listener)
        except BaseException:
            # Those that are open already: an event loop may wait for ever for what nobody closes.
            for listener in self._listeners:
                await listener.abort()
            raise
        doors = [
            AdvertisedListener(listener.addresses[0].port, item.advertised, item.broker, listener.options.name)
            for item, listener in zip(self.settings.listen, self._listeners, strict=True)
        ]
        self.core.listener_routes = ListenerRoutes(doors)
        contained = in_container(os.environ)
        own = _own_addresses()
        for listener in self._listeners:
            warning = reachability_warning(
                listener.options.advertise, listener.options.address, contained=contained, own_addresses=own
            )
            if warning is not None:
                _log.warning("%s", warning)
            _log.info("listening on %s", ", ".join(map(str, listener.addresses)))
        if self.settings.shared:
            self._heartbeat_sync = self._new_heartbeat_sync()

    def _new_heartbeat_sync(self) -> HeartbeatSync:
        port = self._listeners[0].addresses[0].port
        # In the form of the official proxies' ids: host, remoting port, gRPC port; here they are one.
        name = self.settings.replica or socket.gethostname()
        if self.settings.workers > 1:
            name = f"{name}-{self._worker}"
        replica = f"{name}%{port}%{port}"
        topic = SyncTopic(self.backend, self.settings.sync.topic)
        return HeartbeatSync(topic, self.registry, replica, asyncio.get_running_loop().time, self.core.changed)

    def _listener(self, item: ListenSettings) -> Listener:
        handlers: Handlers = {
            Protocol.REMOTING: self.rules.connections.wrap_accept(Protocol.REMOTING, self._accept),
            Protocol.GRPC: self.rules.connections.wrap_accept(Protocol.GRPC, self.grpc.server.protocol),
            Protocol.HTTP1: http_health.handler(self.admin_services.health),
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
            reuse_port=self.settings.workers > 1,
        )
        listener = Listener(options, handlers, self._tls, self._negotiated)
        self.metrics.negotiations.failures.append(listener.tls_failures)
        return listener

    def _record(self, settings: Settings) -> "Recorder | None":
        """Begin traffic records, where they are wanted. Raises TrafficError."""
        if settings.traffic.directory is None:
            return None
        # Arrow takes a quarter of a second to load.
        from proxy.observability.records.recorder import Recorder

        recorder = Recorder(settings.traffic, settings.replica or socket.gethostname(), self._worker)
        recorder.watch(self.metrics)
        self.core.observers.append(recorder.observe)
        self.registry.listeners.append(recorder.note_movement)
        self.connection_listeners.append(recorder.note_connection)
        return recorder

    # For operators.

    def _serve_admin_grpc(self) -> "AdminServer | None":
        """The Admin gRPC service, where it is wanted. Raises TlsError."""
        if self.settings.admin.grpc_address is None:
            return None
        # Thirty milliseconds that most can spare.
        from proxy.admin.grpc.server import AdminServer

        return AdminServer(self.admin_services, self.admin.gatekeeping)

    @property
    def closed_listeners(self) -> list[str]:
        """Names of listeners that accept nobody."""
        return [listener.options.name for listener in self._listeners if not listener.addresses]

    @property
    def storage_failure(self) -> Exception | None:
        """Why the embedded broker stores nothing any more; None: it does, or there is none."""
        return None if self._node is None else self._node.store.failed

    def start_drain(self) -> None:
        """Send clients elsewhere, as at the end; who comes all the same is served."""
        self.core.drain.start()
        self.grpc.start_drain()

    def stop_drain(self) -> None:
        """Send nobody away any more."""
        self.core.drain.stop()

    def apply(self, settings: Settings) -> None:
        """Go by other settings, of which only those may differ that can change at run time."""
        self.settings = self.core.settings = settings
        self._limits = _limits(settings)
        self.core.budget.limit = settings.limits.total_bytes
        self.admin_services.log_levels.configured(settings.log_level)
        files = settings.tls.files
        if self._tls is not None and files is not None:
            self._tls.files = files

    # Connections.

    def _negotiated(self, outcome: Outcome, peer: Peer, first: bytes) -> None:
        self.metrics.negotiations(outcome, peer, first)
        self.admin_services.events.negotiated(outcome, peer, first)

    def _accept(self, peer: Peer) -> RemotingChannel:
        # The core takes any channel; a connection made here is one.
        handler = cast(Handler, self.core.handle)
        names = self.rules.names(peer, "remoting")
        if names is None:
            channel = RemotingChannel(self._wheel, handler, self._closed, peer, self._limits)
        else:
            channel = NamespacedChannel(self._wheel, handler, self._closed, peer, self._limits, names)
        channel.on_protocol_error = self.admin_services.events.undecodable
        self.channels.add(channel)
        if self.connection_listeners:
            connections.notify(self.connection_listeners, connections.opened("remoting", channel))
        return channel

    def _closed(self, connection: RemotingConnection) -> None:
        channel = cast(RemotingChannel, connection)
        self.channels.discard(channel)
        if self.connection_listeners:
            connections.notify(self.connection_listeners, connections.remoting_closed(channel))
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
                if now - channel.read_at > self.settings.limits.idle_timeout and not channel.in_flight:
                    channel.close(CloseCause.IDLE)
            membership.expire(self.core, now)

    async def _drain(self) -> None:
        """Say so to whoever asks for health; then accept nobody new, send clients elsewhere, let requests finish.

        Clients that do not know GO_AWAY are served until everything else has finished.
        """
        self.core.drain.announced = True
        await self.grpc.announce_drain()
        # What load balancers need to notice.
        await anyio.sleep(self.settings.drain_delay)
        for listener in self._listeners:
            await listener.close()
        self.core.drain.start()
        async with anyio.create_task_group() as group:
            group.start_soon(self.grpc.drain, self.settings.drain_timeout)
            await self._drain_remoting()
        if self._heartbeat_sync is not None:
            with anyio.move_on_after(1.0), contextlib.suppress(RemotingError):
                await self._heartbeat_sync.flush()

    async def _drain_remoting(self) -> None:
        await anyio.sleep(min(_GO_AWAY_TIME, self.settings.drain_timeout / 2))
        for channel in self.channels:
            channel.pause()
        with anyio.move_on_after(self.settings.drain_timeout):
            while self.core.active_requests:
                await anyio.sleep(_POLL_INTERVAL)
        for listener in self._listeners:
            await listener.abort()
        for channel in list(self.channels):
            channel.close(CloseCause.DRAIN)
        with anyio.move_on_after(_FAREWELL_TIME):
            while self.channels or self._leaving:
                await anyio.sleep(_POLL_INTERVAL)

    async def _reload_certificates(self) -> None:
        while self._tls is not None:
            await anyio.sleep(self.settings.tls.reload_interval)
            await self.refresh_certificates()

    async def refresh_certificates(self) -> None:
        """Take the certificates as their files are now, where they have changed."""
        if self._tls is not None and await anyio.to_thread.run_sync(self._tls.refresh) is Refresh.FAILED:
            _log.error("the changed TLS certificate is not usable, the former stays in use: %s", self._tls.error)

    # Counting.

    def _announce(self, _: Messaging, change: ConsumerGroupChange) -> None:
        if self._heartbeat_sync is not None:
            self._heartbeat_sync.announce(change)

    def _count_change(self, _: Messaging, change: ConsumerGroupChange) -> None:
        self.metrics.changes["joined" if change.joined else "left"] += 1

    def _watch(self) -> None:
        metrics = self.metrics
        register_core_gauges(metrics, self.core)
        if isinstance(self.backend, ClusterBackend):
            self.backend.watch(metrics)
        if self.tracing is not None:
            metrics.counter("gantry_spans", "Spans of sampled requests and deliveries.", "kind", self.tracing.spans)
        if self._node is not None:
            self._node.watch(metrics)


def _trace(settings: Settings) -> "Tracing | None":
    """Begin to trace, where it is wanted."""
    if settings.tracing.endpoint is None:
        return None
    # What it needs is an extra of the installation.
    from proxy.observability.tracing.tracing import Tracing

    return Tracing(settings.tracing, settings.replica or socket.gethostname())


def _limits(settings: Settings) -> Limits:
    limits = settings.limits
    return Limits(
        limits.requests, limits.waiting, limits.request_bytes, limits.buffer, limits.hard_buffer, limits.frame
    )


async def _start(listener: Listener) -> None:
    """Raises OSError, which says what could not be listened on."""
    try:
        await listener.start()
    except OSError as error:
        wanted = listener.options.address
        raise OSError(error.errno, f"cannot listen on {wanted}: {error.strerror or error}") from None


def _own_addresses() -> list[str]:
    """This host's addresses, as far as its name leads to them."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        return []

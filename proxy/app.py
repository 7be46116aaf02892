"""The composition root: builds a replica from the settings, runs it, and shuts it down.

The network layer consists of asyncio protocols, on uvloop if it is installed. anyio provides task groups, time limits
and worker threads.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from protocol_negotiation.detect import Protocol
from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.listener import Listener
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from proxy.admin.http.admin_api import AdminApi
from proxy.auth import auth_metrics
from proxy.auth.admin_users import AdminUsers
from proxy.auth.audit import LostLines, to_file
from proxy.auth.audit_topic import AuditTopic
from proxy.auth.reload import reload
from proxy.auth.sources.brokers import BrokerSource
from proxy.auth.sources.source import Source
from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.client_bounds import client_bounds
from proxy.backends.embedded_node import EmbeddedNode
from proxy.backends.tool_requests import CLUSTER_TOOL_REQUESTS, TOOL_HANDLERS
from proxy.core import membership
from proxy.core.client_bounds import ClientBounds
from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange
from proxy.core.connections import ConnectionListener
from proxy.core.forwarding import forward
from proxy.core.handlers import HANDLERS
from proxy.core.messaging import Messaging
from proxy.core.push_relay import relay
from proxy.core.remoting_channel import RemotingChannel
from proxy.embedded.backend import EmbeddedBackend
from proxy.frontends import http_health
from proxy.frontends.certificates import Certificates
from proxy.frontends.grpc_frontend import GrpcFrontend
from proxy.frontends.listeners import Listeners, broker_listener, broker_listening
from proxy.frontends.open_connections import OpenConnections
from proxy.frontends.remoting_frontend import RemotingFrontend
from proxy.frontends.replica_drain import ReplicaDrain
from proxy.frontends.revocation import Revocation
from proxy.guards import Guards
from proxy.observability import log_stream, request_logs
from proxy.observability import metrics as prometheus
from proxy.observability.metrics import Metrics, core_gauges
from proxy.observability.metrics.server_push import CountedPush
from proxy.observability.metrics.transactions import CountedTransactions
from proxy.operations import health_checks
from proxy.operations.services import AdminServices
from proxy.overload import overload_metrics
from proxy.overload.monitor import Overload
from proxy.replication.heartbeat_sync import HeartbeatSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.loading import Sources
from proxy.settings.model import Settings
from proxy.settings.naming import naming
from proxy.traffic_rules.engine import RuleEngine
from remoting.broker_requests import TOOL_REQUESTS
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.requests import REQUESTS
from remoting.timeout_wheel import TimeoutWheel, ticking

if TYPE_CHECKING:
    from proxy.admin.grpc.server import AdminServer
    from proxy.observability.records.recorder import Recorder
    from proxy.observability.tracing.tracing import Tracing


# Timeout in seconds for the last announcements to other proxies at shutdown.
_FLUSH_TIMEOUT = 1.0


class App:
    """One replica, before a cluster or with an embedded broker.

    Raises StartError: StoreLocked, UnknownFormat or StoreUnusable if the embedded broker's directory cannot be opened,
    TrafficError if traffic records cannot be kept as the settings ask, RulesError if the traffic rules are invalid,
    AuthError if users and policies cannot be loaded, TlsError, TokenFileError.

    worker: number of this process among several workers. ticket_secret: secret of all workers, for TLS session tickets
    that each of them accepts.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sources | None = None,
        worker: int = 0,
        ticket_secret: bytes | None = None,
    ) -> None:
        self.settings = settings
        self._worker = worker
        self._name = settings.replica or socket.gethostname()
        self._wheel = TimeoutWheel(asyncio.get_running_loop().time)
        mode = "cluster" if settings.embedded.directory is None else "local"
        self.metrics = Metrics(settings.metrics, self._name, mode)
        self.tracing = self._new_tracing()
        self.traffic = self._new_recorder()
        self.registry = ClientRegistry(settings.client_expiry)
        self.guards = Guards(settings, self.registry, self._user_sources())
        self.authority = self.guards.authority
        self.certificates = Certificates(settings, ticket_secret)
        self._push = CountedPush(self.guards.check_push(relay))
        self._heartbeat_sync: HeartbeatSync | None = None
        with contextlib.ExitStack() as failed:
            self._node = self._new_node()
            self.backend = self._new_backend()
            # A failure from here on must not leave a store open.
            failed.callback(self.backend.close)
            self.core = self._new_core()
            self.rules = RuleEngine(self.core, settings.rules)
            self._new_frontends()
            self._new_admin(sources)
            self._wire()
            failed.pop_all()

    # Construction.

    def _new_tracing(self) -> "Tracing | None":
        if self.settings.tracing.endpoint is None:
            return None
        # OpenTelemetry is an optional dependency.
        from proxy.observability.tracing.tracing import Tracing

        return Tracing(self.settings.tracing, self._name)

    def _new_node(self) -> EmbeddedNode | None:
        """Return the embedded broker of this process, if configured. Raises StartError."""
        directory = self.settings.embedded.directory
        if directory is None:
            return None
        with naming("embedded.directory"):
            return EmbeddedNode(self.settings, directory, self._push, self.guards.check_push)

    def _new_backend(self) -> ClusterBackend | EmbeddedBackend:
        if self._node is not None:
            return self._node.backend
        return ClusterBackend(
            self.settings.cluster,
            self._wheel,
            self._push,
            self.metrics.upstreams,
            self.certificates.cluster,
            self.guards.signing.signer,
        )

    def _new_core(self) -> Messaging:
        handlers = {**HANDLERS, **TOOL_HANDLERS, **self.guards.handlers}
        tools = TOOL_REQUESTS if self.settings.has_embedded_broker else CLUSTER_TOOL_REQUESTS
        self._transactions = CountedTransactions(handlers.get(RequestCode.END_TRANSACTION, forward))
        handlers[RequestCode.END_TRANSACTION] = self._transactions
        checks = self.guards.checks(lambda: self.rules.names_by_user)
        observers = (self.metrics.observe, *request_logs.observers(self.settings.logs))
        return Messaging(
            self.settings,
            self.registry,
            self.backend,
            # Tools use the address that routes name, which is a clients' listener.
            requests={**REQUESTS, **tools},
            handlers=self.guards.wrap(handlers),
            forward=forward,
            checks=checks if self.tracing is None else (*checks, self.tracing.begin),
            observers=observers if self.traffic is None else (*observers, self.traffic.observe),
            listeners=(membership.notify, self.metrics.group_changes.count, self._announce_change),
            reply_guards={**self.guards.reply_guards, **self.metrics.requests.dead_letters.reply_guards},
            signing=self.guards.signing,
            bounds=client_bounds(self.settings, self.backend)
            if isinstance(self.backend, ClusterBackend)
            else ClientBounds(),
        )

    def _new_frontends(self) -> None:
        """Make the listeners and the frontends behind them. The connections of all protocols share the event loop."""
        settings, authority = self.settings, self.authority
        self.turns = FairTurns(asyncio.get_running_loop())
        self.overload = self._new_overload()
        # Notified of every client connection, remoting or gRPC.
        self.connection_listeners: list[ConnectionListener] = [
            self.metrics.connections,
            request_logs.log_closed_connection,
            self.rules.connections.on_connection_event,
            *self.guards.connection_listeners,
        ]
        if self.traffic is not None:
            self.connection_listeners.append(self.traffic.on_connection_event)
        self.grpc = GrpcFrontend(
            self.core,
            settings,
            self.connection_listeners,
            self.rules.resource_names,
            self.overload.watch,
            self.guards.grpc,
            self.turns,
            lambda: health_checks.backend_works(self),
        )
        self.remoting = RemotingFrontend(
            self.core,
            self._wheel,
            settings.limits,
            self.connection_listeners,
            self.rules.names,
            self.overload.watch,
            None if authority is None else authority.of_command,
            self.turns,
        )
        self._connections = OpenConnections(self.remoting, self.grpc)
        if authority is not None:
            end_at_broker = None if self._node is None else self._node.backend.broker.end_memberships
            revocation = Revocation(self.core, authority, lambda: self.channels, self.grpc, end_at_broker)
            authority.change_listeners.append(revocation.apply)
            if settings.auth.jwks is not None:
                authority.refreshers.append(revocation.expire)

    def _new_admin(self, sources: Sources | None) -> None:
        """Make the admin API, HTTP and gRPC, and the listeners, which answer health checks. Raises TlsError."""
        self.admin_services = AdminServices(self, sources)
        grpc = self.guards.grpc
        users = None if self.authority is None or grpc is None else AdminUsers(self.authority, grpc)
        self.admin = AdminApi(self.admin_services, users)
        self.admin_grpc = self._new_admin_grpc()
        self._listeners = self._new_listeners()
        self._broker_listener = None if self._node is None else self._new_broker_listener(self._node)
        self.drain = ReplicaDrain(self.core, self.remoting, self.grpc, self._listeners)

    def _wire(self) -> None:
        """Connect parts that notify each other."""
        self.remoting.on_protocol_error = self.admin_services.events.undecodable
        if self.traffic is not None:
            self.registry.listeners.append(self.traffic.on_membership_event)
        if isinstance(self.backend, ClusterBackend):
            self.backend.on_unresponsive.append(self.core.end_polls_at)
        topic = self.settings.auth.audit_topic
        self._lost_audit_lines = LostLines()
        self._audit = None if topic is None else AuditTopic(topic, SyncTopic(self.backend, topic).send)
        self._wire_metrics()

    def _user_sources(self) -> list[Source]:
        auth = self.settings.auth
        return [BrokerSource(lambda: self.backend, auth.brokers_interval)] if auth.brokers else []

    def _new_overload(self) -> Overload:
        # The connections of the frontends, which are made later.
        return Overload(
            self.settings.limits,
            self.settings.workers,
            self.core.budget,
            lambda: self._connections,
            lambda connection: self._connections.channels_of(connection),
            self._refuse_connections,
        )

    def _refuse_connections(self, reason: str | None) -> None:
        self._listeners.refuse(reason)
        if self._broker_listener is not None:
            self._broker_listener.refuse(reason)

    def _new_recorder(self) -> "Recorder | None":
        """Return the recorder of traffic records, if configured. Raises TrafficError."""
        if self.settings.traffic.directory is None:
            return None
        # Importing Arrow takes 0.25 s.
        from proxy.observability.records.recorder import Recorder

        return Recorder(self.settings.traffic, self._name, self._worker)

    def _new_admin_grpc(self) -> "AdminServer | None":
        """Return the Admin gRPC service, if configured. Raises TlsError."""
        if self.settings.admin.grpc_address is None:
            return None
        # The import takes 30 ms.
        from proxy.admin.grpc.server import AdminServer

        return AdminServer(self.admin_services, self.admin.gatekeeping)

    def _new_broker_listener(self, node: EmbeddedNode) -> Listener | None:
        """Return the embedded broker's own listener, if configured. Only remoting clients are accepted there."""
        address = self.settings.embedded.listen
        if address is None:
            return None
        entrance = self.guards.wrap_entrance(self.core, node.entrance)
        accept = partial(self.remoting.accept_at_broker, entrance, node.client_left)
        listener = broker_listener(
            address,
            self.settings,
            {
                Protocol.REMOTING: self.rules.connections.wrap_accept(Protocol.REMOTING, accept),
                Protocol.HTTP1: Http1Rejector,
            },
            {Protocol.REMOTING: partial(self.rules.connections.reject, Protocol.REMOTING)},
            self.certificates.listeners,
            self._on_negotiated,
        )
        self.metrics.negotiations.failures.append(listener.tls_failures)
        return listener

    def _new_listeners(self) -> Listeners:
        wrap_accept = self.rules.connections.wrap_accept
        reject = self.rules.connections.reject
        listeners = Listeners(
            self.settings,
            {
                Protocol.REMOTING: wrap_accept(Protocol.REMOTING, self.remoting.accept),
                Protocol.GRPC: wrap_accept(Protocol.GRPC, self.grpc.server.protocol),
                Protocol.HTTP1: http_health.handler(self.admin_services.health),
            },
            {protocol: partial(reject, protocol) for protocol in (Protocol.REMOTING, Protocol.GRPC)},
            self.certificates.listeners,
            self._on_negotiated,
        )
        self.metrics.negotiations.failures += listeners.tls_failures
        return listeners

    def _wire_metrics(self) -> None:
        self.metrics.envoy.in_flight = lambda: self.core.in_flight
        self.metrics.envoy.maintenance = lambda: self.rules.gate.maintenance_failures
        self.metrics.add(
            partial(core_gauges.read, self.core, self.turns),
            partial(overload_metrics.read, self.overload, self.core),
            log_stream.read_metrics,
        )
        if self.authority is not None:
            self.metrics.add(partial(auth_metrics.read, self.authority))
        if self._node is not None:
            self._node.count_for(self.metrics)
        backend = self.backend if isinstance(self.backend, ClusterBackend) else self._node
        services = (self.rules, self.grpc, self.certificates, self.admin_services, self.admin)
        optional = (self._lost_audit_lines, self.traffic, self.admin_grpc, self.tracing, self._audit)
        for part in (self._transactions, self._push, backend, *services, *optional):
            if part is not None:
                self.metrics.add(part.read_metrics)

    # Start, run, shut down.

    async def serve(self, ready: Callable[[], None], stop: Callable[[], Awaitable[object]]) -> None:
        """Serve until `stop` returns; call `ready` once clients are accepted.

        Raises OSError, TlsError, and StoreUnusable if the embedded broker's last writes failed.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            ready()
            async with anyio.create_task_group() as group:
                for task in self._background_tasks():
                    group.start_soon(task)
                await stop()
                await self.drain.finish()
                await self._flush_announcements()
                if self.admin_grpc is not None:
                    await self.admin_grpc.close()
                await self.admin.close()
                group.cancel_scope.cancel()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start all parts, the clients' listeners last; `stack` releases them in reverse order."""
        stack.callback(self.overload.close)
        stack.enter_context(ticking(self._wheel))
        stack.enter_context(self.metrics.running())
        stack.enter_context(to_file(self.settings.auth, self._lost_audit_lines))
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
        if self._audit is not None:
            await stack.enter_async_context(self._audit.collecting())
        if self.authority is not None:
            # Before clients connect, which would be denied.
            await self.authority.refresh()
        await self.grpc.start()
        if self._node is not None and self._node.workers is not None:
            await stack.enter_async_context(self._node.workers.serving())
        if self._broker_listener is not None:
            await stack.enter_async_context(
                broker_listening(self._broker_listener, self.remoting.close_broker_channels)
            )
        if self.admin_grpc is not None:
            await self.admin_grpc.open()
        self.admin.open()
        stack.callback(self.admin.release)
        self.core.listener_routes = await self._listeners.open()
        if self.settings.shared:
            self._heartbeat_sync = self._new_heartbeat_sync()

    def _new_heartbeat_sync(self) -> HeartbeatSync:
        # The official proxies' ids consist of host, remoting port and gRPC port; here both ports are the same.
        port = self.addresses[0].port
        name = f"{self._name}-{self._worker}" if self.settings.workers > 1 else self._name
        topic = SyncTopic(self.backend, self.settings.sync.topic)
        clock = asyncio.get_running_loop().time
        return HeartbeatSync(topic, self.registry, f"{name}%{port}%{port}", clock, self.core.changed)

    def _background_tasks(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        yield self.backend.run
        yield self.overload.run
        yield self.remoting.run
        yield self.certificates.run
        if self.authority is not None:
            yield partial(reload, self.authority, self.settings.auth.reload_interval)
        if self._audit is not None:
            yield self._audit.run
        yield self.grpc.run
        yield self.rules.run
        yield self.admin.run
        if self._worker == 0:
            yield self.admin_services.survey.run
        if self.settings.admin.address is not None:
            yield self.admin_services.history.run
        if self.admin_grpc is not None:
            yield self.admin_grpc.run
        if self._node is not None and self._node.workers is not None:
            yield self._node.workers.run
        if self._heartbeat_sync is not None:
            yield self._heartbeat_sync.run

    async def _flush_announcements(self) -> None:
        if self._heartbeat_sync is not None:
            with anyio.move_on_after(_FLUSH_TIMEOUT), contextlib.suppress(RemotingError):
                await self._heartbeat_sync.flush()

    # The interface of operations (proxy.operations.replica.Replica).

    @property
    def channels(self) -> Collection[RemotingChannel]:
        """The open remoting connections."""
        return (*self.remoting.channels, *self.remoting.broker_channels)

    @property
    def addresses(self) -> list[HostPort]:
        """The bound addresses of all listeners."""
        return self._listeners.addresses

    @property
    def closed_listeners(self) -> list[str]:
        """The names of listeners that do not accept connections."""
        return self._listeners.closed

    @property
    def storage_problem(self) -> str | None:
        """Why the embedded broker of this process stores no messages; None if it does, or without one."""
        return None if self._node is None else self._node.storage_problem

    @property
    def storage_failure(self) -> str | None:
        """Why the embedded broker of this process stores nothing until a restart; None if it does, or without one."""
        return None if self._node is None else self._node.storage_failure

    def apply(self, settings: Settings) -> None:
        """Apply settings, which may differ only in those that can change at run time."""
        self.settings = self.core.settings = settings
        self.remoting.apply(settings.limits)
        self.overload.apply(settings.limits)
        self.admin_services.log_levels.configured(settings.log_level)
        self.certificates.apply(settings)

    async def refresh_certificates(self) -> None:
        """Load the TLS certificate files if they have changed."""
        await self.certificates.refresh()

    # Events.

    def _on_negotiated(self, outcome: Outcome, peer: Peer, first: bytes) -> None:
        self.metrics.negotiations(outcome, peer, first)
        self.admin_services.events.negotiated(outcome, peer, first)

    def _announce_change(self, _: Messaging, change: ConsumerGroupChange) -> None:
        if self._heartbeat_sync is not None:
            self._heartbeat_sync.announce(change)

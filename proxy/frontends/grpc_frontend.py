"""The gRPC frontend of a replica: messaging service, health and reflection on the configured transport.

The in-process transport is an asyncio protocol; anyio provides the task group of the background tasks.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import anyio
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from grpc_gateway.clients.client_lifecycle import LOSSES
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.grpcio_transport import GrpcioServer, Relay
from grpc_gateway.message_trace import MessageTrace
from grpc_gateway.name_mapping import NameMapping
from grpc_gateway.permissions import Guard
from grpc_gateway.server import GrpcConnection, Server
from grpc_gateway.service import MessagingService
from protocol_negotiation import standstill
from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2 import service_pb2
from protos.apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from proxy.core import connections
from proxy.core.connections import Connection, ConnectionListener
from proxy.core.events.rpc import RpcObserver
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.messaging import Messaging
from proxy.core.metadata_cache import MetadataCache
from proxy.frontends.grpc_core import GrpcCore
from proxy.frontends.message_trace_writer import MessageTraceWriter
from proxy.observability.metrics.family import Family, Kind, Samples, by_label
from proxy.replication.renewal_sync import RenewalSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.model import Settings
from remoting.errors import RemotingError
from remoting.memory_watch import MemoryWatch
from remoting.tasks import every

_SERVICE = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Seconds between sweeps of renewals and cached metadata, and between sweeps of clients and updates of health.
_RENEWAL_INTERVAL = 1.0
_SWEEP_INTERVAL = 5.0
# Seconds between writes of trace records.
_TRACE_INTERVAL = 1.0
# Timeout in seconds for sending the last renewals to other replicas at shutdown.
_FLUSH_TIMEOUT = 1.0
_CALLS = Family(
    "gantry_grpc_calls",
    Kind.COUNTER,
    "Completed calls of all gRPC services, by gRPC status.",
    ("method", "status"),
)
_STREAMS = Family("gantry_grpc_streams", Kind.GAUGE, "Open gRPC calls.")
_TELEMETRY = Family("gantry_telemetry_streams", Kind.GAUGE, "Open telemetry streams.")
_CLIENTS = Family("gantry_grpc_clients", Kind.GAUGE, "gRPC clients by id and host.")
_HELD = Family("gantry_grpc_held", Kind.GAUGE, "Deliveries whose invisible duration is being renewed.")
_LOST = Family(
    "gantry_grpc_lost_clients",
    Kind.COUNTER,
    "gRPC clients removed because their connection ended without a drain, by the cause of its end.",
    ("cause",),
)
_RENEWALS = Family("gantry_renewals", Kind.COUNTER, "Renewals of deliveries, by outcome.", ("outcome",))
_TOPICS = Family("gantry_grpc_topics", Kind.GAUGE, "Topics that connected gRPC producers publish to.")
_TRACES = Family(
    "gantry_message_traces",
    Kind.COUNTER,
    "Trace records of gRPC clients' messages: written, failed, or dropped under overload.",
    ("outcome",),
)


class GrpcFrontend:
    """The gRPC service with its clients, renewals, metadata and health.

    backend_works: whether brokers can be reached; the messaging service's health depends on it.

    Call `start` before connections are accepted, `run` in a task while they are, and `drain` at shutdown.
    """

    def __init__(
        self,
        core: Messaging,
        settings: Settings,
        connection_listeners: Sequence[ConnectionListener] = (),
        names: Callable[[Peer, str], NameMapping | None] = lambda _, __: None,
        memory: MemoryWatch | None = None,
        guard: Guard | None = None,
        turns: FairTurns | None = None,
        backend_works: Callable[[], bool] = lambda: True,
    ) -> None:
        loop = asyncio.get_running_loop()
        grpc_settings = settings.grpc
        options = grpc_settings.options(settings.client_expiry, settings.has_embedded_broker)
        self._core = core
        self.metadata = MetadataCache(lambda: core.backend)
        self.gateway = GrpcCore(core, self.metadata)
        self.clients = ClientTable(
            GrpcChannel, per_connection=grpc_settings.clients_per_connection, name_mapping=names, guard=guard
        )
        # A new name at each start: this process does not hold the deliveries of a former one.
        replica = uuid.uuid4().hex[:12] if settings.shared else ""
        self.renewal = Renewal(self.gateway, options, loop.time, replica)
        self._renewals_topic = settings.sync.renewals if settings.shared else None
        self._renewal_sync: RenewalSync | None = None
        trace = MessageTrace(grpc_settings.trace_topic) if grpc_settings.message_trace else None
        self._trace = trace
        self._trace_writer = None if trace is None else MessageTraceWriter(core, trace)
        observe = RpcObserver(core.observers).observe
        self.service = MessagingService(self.gateway, self.clients, self.renewal, options, observe, guard, trace)
        server_options = grpc_settings.server_options(settings.limits.idle_timeout)
        self.server: Server | GrpcioServer = (
            GrpcioServer(server_options, on_open=self._opened, on_close=self._closed)
            if grpc_settings.transport == "grpcio"
            else Server(server_options, on_open=self._opened, on_close=self._closed, turns=turns)
        )
        if isinstance(self.server, Server):
            self.server.memory = memory
            self.server.client_memory = self.clients.memory
        self._connection_listeners = connection_listeners
        self._clock = loop.time
        self._health = health.aio.HealthServicer()
        # Whether operators permit serving, and whether any broker is listed.
        self._serving = True
        self._has_brokers = False
        self._backend_works = backend_works
        self._register(with_health=grpc_settings.health, with_reflection=grpc_settings.reflection)

    def _register(self, *, with_health: bool, with_reflection: bool) -> None:
        # Both servers accept the registration functions of grpc.aio.
        server = cast(grpc.aio.Server, self.server)
        add_MessagingServiceServicer_to_server(self.service, server)
        names = [_SERVICE]
        if with_health:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            names.append(health.SERVICE_NAME)
        if with_reflection:
            names.append(reflection.SERVICE_NAME)
            servicer = reflection.aio.ReflectionServicer(names)
            add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]

    def _opened(self, connection: Connection) -> None:
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.opened("grpc", connection))

    def _closed(self, connection: GrpcConnection | Relay) -> None:
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.grpc_closed(connection, self.clients))
        disconnected = self.clients.disconnected(connection)
        cause = connection.cause
        if cause in LOSSES and not connection.draining:
            self.service.client_lifecycle.connection_lost(disconnected, cause)

    async def start(self) -> None:
        """Prepare for connections."""
        if isinstance(self.server, GrpcioServer):
            await self.server.start()
        if self._renewals_topic is not None:
            self._renewal_sync = RenewalSync(SyncTopic(self._core.backend, self._renewals_topic), self.renewal)
        await self._update_health()

    async def run(self) -> None:
        """Run the background tasks until cancelled."""
        async with anyio.create_task_group() as group:
            if self._renewal_sync is not None:
                group.start_soon(self._renewal_sync.run)
            if self._trace_writer is not None:
                group.start_soon(partial(every, _TRACE_INTERVAL, self._trace_writer.flush, name="trace records"))
            group.start_soon(partial(every, _RENEWAL_INTERVAL, self._renew, name="renewals"))
            group.start_soon(partial(every, _RENEWAL_INTERVAL, self.metadata.refresh, name="metadata of topics"))
            group.start_soon(
                partial(every, _SWEEP_INTERVAL, self._sweep, name="expiry of gRPC clients", sleep=standstill.sleep)
            )
            group.start_soon(partial(every, _SWEEP_INTERVAL, self._update_health, name="gRPC health"))

    def _renew(self) -> None:
        self.renewal.sweep(self._clock())

    def _sweep(self) -> None:
        self.service.client_lifecycle.sweep(self._clock())

    async def _update_health(self) -> None:
        has_brokers = False
        with contextlib.suppress(RemotingError):
            has_brokers = bool(await self._core.backend.brokers()) and self._backend_works()
        self._has_brokers = has_brokers
        await self._publish_health()

    async def _publish_health(self) -> None:
        """Set the status of the server (""), which needs no brokers, and of the messaging service, which does."""
        for name, healthy in (("", True), (_SERVICE, self._has_brokers)):
            await self._health.set(name, _SERVING if healthy and self._serving else _NOT_SERVING)

    async def set_serving(self, serving: bool) -> None:
        """Set whether health reports SERVING; requests are served in any case."""
        self._serving = serving
        await self._publish_health()

    async def announce_drain(self) -> None:
        """Report NOT_SERVING from now on; requests are still served."""
        await self._health.enter_graceful_shutdown()

    def start_drain(self) -> None:
        """Ask clients to reconnect elsewhere; new connections are still served."""
        self.service.telemetry.drain()
        open_connections: Sequence[GrpcConnection | Relay] = tuple(self.server.connections)
        for connection in open_connections:
            connection.drain()

    async def drain(self, grace: float) -> None:
        """Ask clients to reconnect elsewhere, wait `grace` seconds for their calls, then remove all clients."""
        self.service.telemetry.drain()
        await self.server.drain(grace)
        await self.service.client_lifecycle.close()
        for last in (self._renewal_sync, self._trace_writer):
            if last is not None:
                with anyio.move_on_after(_FLUSH_TIMEOUT):
                    await last.flush()

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the metrics of calls, clients, renewals and trace records."""
        lifecycle = self.service.client_lifecycle
        yield _STREAMS, {(): self.server.open_streams}
        yield _TELEMETRY, {(): len(self.service.telemetry.streams)}
        yield _CLIENTS, {(): len(self.clients)}
        yield _HELD, {(): len(self.renewal)}
        yield _LOST, by_label(lifecycle.lost)
        yield _RENEWALS, by_label(self.renewal.counts)
        yield _TOPICS, {(): len(lifecycle.producers)}
        yield _CALLS, {(method, status.name): count for (method, status), count in self.server.calls().items()}
        if self._trace is not None:
            yield _TRACES, by_label(self._trace.counts)

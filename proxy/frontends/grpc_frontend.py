"""The gRPC side of a replica: the service and what goes with it, on the transport that the settings choose."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.grpcio_transport import GrpcioServer, Relay
from grpc_gateway.name_mapping import NameMapping
from grpc_gateway.server import GrpcConnection, Server
from grpc_gateway.service import MessagingService
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2 import service_pb2
from protos.apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from proxy.core import connections
from proxy.core.connections import Connection, ConnectionListener
from proxy.core.events import notify
from proxy.core.events.rpc import of_rpc
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.messaging import Messaging
from proxy.core.metadata_cache import MetadataCache
from proxy.frontends.grpc_core import Gateway
from proxy.observability.metrics import Metrics
from proxy.observability.metrics.family import Family, Kind
from proxy.replication.renewal_sync import RenewalSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.model import Settings
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.grpc")

_SERVICE = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Seconds between looks for renewals that are due, for clients that are gone, and at our own health.
_RENEWAL = 1.0
_SWEEP = 5.0
# Seconds that other replicas have at the end to be told what is left to tell.
_FLUSH = 1.0
_CALLS = Family(
    "gantry_grpc_calls",
    Kind.COUNTER,
    "Calls of all gRPC services that have ended, by gRPC status.",
    ("method", "status"),
)


class GrpcService:
    """Everything about gRPC. `start` it before connections come, `run` it, `drain` it at the end."""

    def __init__(
        self,
        core: Messaging,
        settings: Settings,
        metrics: Metrics,
        connection_listeners: Sequence[ConnectionListener] = (),
        names: Callable[[Peer], NameMapping | None] = lambda _: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        wanted = settings.grpc
        options = wanted.options(settings.client_expiry)
        self._core = core
        self.metadata = MetadataCache(lambda: core.backend)
        self.gateway = Gateway(core, self.metadata)
        self.clients = ClientTable(GrpcChannel, per_connection=wanted.clients_per_connection, name_mapping=names)
        # Another name at each start: what a former process held nobody holds any more.
        replica = uuid.uuid4().hex[:12] if settings.shared else ""
        self.renewal = Renewal(self.gateway, options, loop.time, replica)
        self._renewals_topic = settings.sync.renewals if settings.shared else None
        self._renewal_sync: RenewalSync | None = None
        self.service = MessagingService(self.gateway, self.clients, self.renewal, options, self._observe)
        make = GrpcioServer if wanted.transport == "grpcio" else Server
        self.server: Server | GrpcioServer = make(
            wanted.server_options(settings.limits.idle_timeout), on_open=self._opened, on_close=self._closed
        )
        self._connection_listeners = connection_listeners
        self._clock = loop.time
        self._health = health.aio.HealthServicer()
        # Whether operators want clients here, and whether brokers are known.
        self._wanted = True
        self._well = False
        self._register(wanted.health, wanted.reflection)
        self._watch(metrics)

    def _register(self, healthy: bool, reflecting: bool) -> None:
        # Both take grpc.aio's registration.
        server = cast(grpc.aio.Server, self.server)
        add_MessagingServiceServicer_to_server(self.service, server)
        names = [_SERVICE]
        if healthy:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            names.append(health.SERVICE_NAME)
        if reflecting:
            names.append(reflection.SERVICE_NAME)
            reflecting_servicer = reflection.aio.ReflectionServicer(names)
            add_ServerReflectionServicer_to_server(reflecting_servicer, server)  # type: ignore[no-untyped-call]

    def _opened(self, connection: Connection) -> None:
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.opened("grpc", connection))

    def _closed(self, connection: Connection) -> None:
        if self._connection_listeners:
            connections.notify(self._connection_listeners, connections.grpc_closed(connection, self.clients))
        self.clients.disconnected(connection)

    def _observe(self, name: str, call: Rpc, request: Any, code: int, started: float) -> None:
        notify(self._core.observers, of_rpc, name, call, request, code, started, time.monotonic())

    async def start(self) -> None:
        """Be ready for connections."""
        if isinstance(self.server, GrpcioServer):
            await self.server.start()
        if self._renewals_topic is not None:
            self._renewal_sync = RenewalSync(SyncTopic(self._core.backend, self._renewals_topic), self.renewal)
        await self._look_at_brokers()

    async def run(self) -> None:
        """Keep everything going, until cancelled."""
        async with anyio.create_task_group() as group:
            if self._renewal_sync is not None:
                group.start_soon(self._renewal_sync.run)
            group.start_soon(_every, _RENEWAL, self._renew)
            group.start_soon(_every, _RENEWAL, self.metadata.refresh)
            group.start_soon(_every, _SWEEP, self._sweep)
            group.start_soon(_every, _SWEEP, self._look_at_brokers)

    async def _renew(self) -> None:
        self.renewal.sweep(self._clock())

    async def _sweep(self) -> None:
        self.service.client_lifecycle.sweep(self._clock())

    async def _look_at_brokers(self) -> None:
        well = False
        with contextlib.suppress(RemotingError):
            well = bool(await self._core.backend.brokers())
        self._well = well
        await self._tell_health()

    async def _tell_health(self) -> None:
        """The service is as well as its brokers; the replica itself ("") is, even without them."""
        for name, well in (("", True), (_SERVICE, self._well)):
            await self._health.set(name, _SERVING if well and self._wanted else _NOT_SERVING)

    async def want_clients(self, wanted: bool) -> None:
        """What whoever asks for health is told of operators' wishes, until they change; everything else goes on."""
        self._wanted = wanted
        await self._tell_health()

    async def announce_drain(self) -> None:
        """Tell whoever asks for health that this replica is not serving; everything else goes on."""
        await self._health.enter_graceful_shutdown()

    def start_drain(self) -> None:
        """Send clients elsewhere; who comes all the same is served."""
        self.service.telemetry.drain()
        leaving: Sequence[GrpcConnection | Relay] = tuple(self.server.connections)
        for connection in leaving:
            connection.drain()

    async def drain(self, grace: float) -> None:
        """Send clients elsewhere, let their calls finish for `grace` seconds, then let go of everybody."""
        self.service.telemetry.drain()
        await self.server.drain(grace)
        await self.service.client_lifecycle.close()
        if self._renewal_sync is not None:
            with anyio.move_on_after(_FLUSH):
                await self._renewal_sync.flush()

    def _watch(self, metrics: Metrics) -> None:
        server, telemetry, presence = self.server, self.service.telemetry, self.service.client_lifecycle
        metrics.gauge("gantry_grpc_streams", "Open gRPC calls.", lambda: server.open_streams)
        metrics.gauge("gantry_telemetry_streams", "Open telemetry streams.", lambda: len(telemetry.streams))
        metrics.gauge("gantry_grpc_clients", "gRPC clients by id and host.", lambda: len(self.clients))
        metrics.gauge("gantry_grpc_held", "Deliveries renewed for their consumers.", lambda: len(self.renewal))
        metrics.counter("gantry_renewals", "Renewals of deliveries, by their outcome.", "outcome", self.renewal.counts)
        metrics.gauge(
            "gantry_grpc_topics", "Topics that gRPC producers here publish to.", lambda: len(presence.producers)
        )
        metrics.add(lambda: [(_CALLS, {(method, one.name): count for (method, one), count in server.calls().items()})])


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await anyio.sleep(seconds)
        try:
            await work()
        except Exception:
            # A mistake of ours; what else the replica does goes on, and so do the next turns of this.
            _log.exception("upkeep failed")

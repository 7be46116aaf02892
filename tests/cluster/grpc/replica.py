"""A replica of the gRPC service in this process, with a real cluster as its backend."""

import asyncio
from types import TracebackType
from typing import Any, Self

import grpc.aio
import orjson

from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.service import MessagingService
from protos.apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.advertised_listeners import ListenerRoutes
from proxy.core.checks import well_formed
from proxy.core.client_registry import ClientRegistry
from proxy.core.forwarding import forward
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.handlers import HANDLERS
from proxy.core.messaging import Messaging
from proxy.core.metadata_cache import MetadataCache
from proxy.core.push_relay import relay
from proxy.core.signing import Signer
from proxy.frontends.grpc_core import GrpcCore
from proxy.replication.renewal_sync import RenewalSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.cluster import ClusterSettings
from proxy.settings.model import Settings
from remoting.timeout_wheel import TimeoutWheel
from tests.cluster.client import Client, unique
from tests.cluster.servers import Cluster

# UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, which only tools send.
_CREATE_GROUP = 200


async def create_group(cluster: Cluster, **settings: object) -> str:
    """Create a consumer group with a unique name, and return the name."""
    name = unique("group")
    async with Client(cluster.broker) as client:
        await client.get(_CREATE_GROUP, body=orjson.dumps({"groupName": name, **settings}))
    return name


class Replica:
    """A replica of the gRPC service, on grpcio's transport; an async context manager.

    name: its name in renewal events; empty if it does not exchange them. signer: signs its requests.
    """

    def __init__(self, namesrv: str, name: str = "", signer: Signer | None = None, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        settings = Settings(cluster=ClusterSettings(namesrv=namesrv.split(";")))
        self._wheel = TimeoutWheel(loop.time)
        core = Messaging(settings, ClientRegistry(), HANDLERS, forward, (well_formed,), (), (), ListenerRoutes())
        self._backend = core.backend = ClusterBackend(settings.cluster, self._wheel, relay, signer=signer)
        gateway = GrpcCore(core, MetadataCache(lambda: core.backend))
        self.renewal = Renewal(gateway, GatewayOptions(**options), loop.time, name)
        self.clients = ClientTable(GrpcChannel)
        self._background = [self._backend.run(), self._tick(), self._sweep()]
        if name:
            self._background.append(RenewalSync(SyncTopic(self._backend, "GantryRenewals"), self.renewal).run())
        self._running: list[asyncio.Task[None]] = []
        self._server = grpc.aio.server()
        service = MessagingService(gateway, self.clients, self.renewal, GatewayOptions(**options), lambda *_: None)
        add_MessagingServiceServicer_to_server(service, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def __aenter__(self) -> Self:
        await self._backend.start()
        self._running = [asyncio.create_task(work) for work in self._background]
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(0)
        self.crash()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._backend.close()

    def crash(self) -> None:
        """Stop all background tasks, including renewal."""
        for task in self._running:
            task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._wheel.tick)
            self._wheel.advance()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.renewal.sweep(asyncio.get_running_loop().time())

"""Replicas of the gRPC service in this process, before a real cluster, and a raw client that calls them."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc.aio
import orjson
from google.protobuf.duration_pb2 import Duration

from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.service import MessagingService
from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub, add_MessagingServiceServicer_to_server
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
from proxy.frontends.grpc_core import GrpcCore
from proxy.replication.renewal_sync import RenewalSync
from proxy.replication.sync_topic import SyncTopic
from proxy.settings.cluster import ClusterSettings
from proxy.settings.model import Settings
from remoting.timeout_wheel import TimeoutWheel
from tests.cluster.client import BROKER, Client, unique, wait_until
from tests.cluster.servers import TIMEOUT, Cluster

_END: Any = {"query_offset_policy": d.END}
# UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, which only tools send.
_CREATE_GROUP = 200


async def create_group(cluster: Cluster, **settings: object) -> str:
    """Create a consumer group of a unique name; the name."""
    name = unique("group")
    async with Client(cluster.broker) as client:
        await client.get(_CREATE_GROUP, body=orjson.dumps({"groupName": name, **settings}))
    return name


class Replica:
    """One replica's gRPC service, on grpcio's own transport. `async with` it.

    name: by which it tells other replicas of renewals; empty: it does not.
    """

    def __init__(self, namesrv: str, name: str = "", **options: Any) -> None:
        loop = asyncio.get_running_loop()
        settings = Settings(cluster=ClusterSettings(namesrv=namesrv.split(";")))
        self._wheel = TimeoutWheel(loop.time)
        core = Messaging(settings, ClientRegistry(), HANDLERS, forward, (well_formed,), (), (), ListenerRoutes())
        self._backend = core.backend = ClusterBackend(settings.cluster, self._wheel, relay)
        gateway = GrpcCore(core, MetadataCache(lambda: core.backend))
        self.renewal = Renewal(gateway, GatewayOptions(**options), loop.time, name)
        self.clients = ClientTable(GrpcChannel)
        self._works = [self._backend.run(), self._tick(), self._sweep()]
        if name:
            self._works.append(RenewalSync(SyncTopic(self._backend, "GantryRenewals"), self.renewal).run())
        self._running: list[asyncio.Task[None]] = []
        self._server = grpc.aio.server()
        service = MessagingService(gateway, self.clients, self.renewal, GatewayOptions(**options), lambda *_: None)
        add_MessagingServiceServicer_to_server(service, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def __aenter__(self) -> Self:
        await self._backend.start()
        self._running = [asyncio.create_task(work) for work in self._works]
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
        """Stop all that goes on by itself, renewal too."""
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


def seconds(value: float) -> Duration:
    """A duration."""
    duration = Duration()
    duration.FromMilliseconds(int(value * 1000))
    return duration


class Consumer:
    """A client of one group and topic. `async with` it."""

    def __init__(self, address: str, group: str, topic: str, client_id: str = "") -> None:
        self.group = d.Resource(name=group)
        self.topic = d.Resource(name=topic)
        # A window that does not grow, so that a stream can be broken in its middle.
        window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
        self._channel = grpc.aio.insecure_channel(address, options=window)
        self.stub: Any = MessagingServiceStub(self._channel)
        self.metadata = (
            ("x-mq-client-id", client_id or unique("grpc-client")),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.1"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def call(self, name: str, request: Any) -> Any:
        """One unary rpc."""
        return await getattr(self.stub, name)(request, metadata=self.metadata, timeout=TIMEOUT)

    def request(self, *, invisible: float = 30, wait: float = 5, queue: int = -1, **fields: Any) -> Any:
        """A ReceiveMessageRequest; of a push consumer if it says auto_renew."""
        request = pb.ReceiveMessageRequest(
            group=self.group,
            message_queue=self.queue(queue),
            batch_size=fields.pop("batch_size", 32),
            long_polling_timeout=seconds(wait),
            **fields,
        )
        if not request.auto_renew:
            request.invisible_duration.CopyFrom(seconds(invisible))
        return request

    def queue(self, number: int, broker: str = BROKER) -> Any:
        """A message queue of the topic."""
        return d.MessageQueue(topic=self.topic, id=number, broker=d.Broker(name=broker))

    def stream(self, **fields: Any) -> Any:
        """A receive under way."""
        return self.stub.ReceiveMessage(self.request(**fields), metadata=self.metadata, timeout=TIMEOUT)

    async def responses(self, **fields: Any) -> list[Any]:
        """All responses of a receive."""
        return [response async for response in self.stream(**fields)]

    async def receive(self, **fields: Any) -> list[Any]:
        """The messages of a receive; none where there are none."""
        responses = await self.responses(**fields)
        status = responses[0].status
        assert status.code in (Code.OK, Code.MESSAGE_NOT_FOUND), status
        return [response.message for response in responses if response.WhichOneof("content") == "message"]

    async def all(self, count: int, timeout: float = TIMEOUT, **fields: Any) -> list[Any]:
        """So many messages, however many receives that takes."""
        found: list[Any] = []
        deadline = time.monotonic() + timeout
        while len(found) < count and time.monotonic() < deadline:
            found += await self.receive(**fields)
        return found

    async def stored(self, count: int, queues: int = 1) -> None:
        """Wait until so many messages are in the queues: a broker puts them there a moment after it took them."""

        async def there() -> bool:
            ends = [
                await self.call("QueryOffset", pb.QueryOffsetRequest(message_queue=self.queue(number), **_END))
                for number in range(queues)
            ]
            return bool(sum(end.offset for end in ends) >= count)

        await wait_until(there, f"{count} messages in their queues")

    async def ack(self, *messages: Any) -> Any:
        """Acknowledge messages, or handles."""
        entries = [pb.AckMessageEntry(message_id=_id(one), receipt_handle=handle(one)) for one in messages]
        return await self.call("AckMessage", pb.AckMessageRequest(group=self.group, topic=self.topic, entries=entries))

    async def change(self, message: Any, invisible: float) -> Any:
        """Hide a message, or a handle's, for so long."""
        return await self.call(
            "ChangeInvisibleDuration",
            pb.ChangeInvisibleDurationRequest(
                group=self.group,
                topic=self.topic,
                receipt_handle=handle(message),
                message_id=_id(message),
                invisible_duration=seconds(invisible),
            ),
        )

    async def forward(self, message: Any) -> Any:
        """Put a message in the dead letter queue."""
        return await self.call(
            "ForwardMessageToDeadLetterQueue",
            pb.ForwardMessageToDeadLetterQueueRequest(
                group=self.group, topic=self.topic, receipt_handle=handle(message), message_id=_id(message)
            ),
        )

    async def send(self, *bodies: bytes, **system: Any) -> None:
        """Send messages, each alone."""
        for body in bodies:
            message = d.Message(
                topic=self.topic,
                body=body,
                system_properties=d.SystemProperties(message_id=unique("01"), **system),
            )
            response = await self.call("SendMessage", pb.SendMessageRequest(messages=[message]))
            assert response.status.code == Code.OK, response


def handle(message: Any) -> str:
    """A message's receipt handle; a handle is one itself."""
    return message if isinstance(message, str) else message.system_properties.receipt_handle


def _id(message: Any) -> str:
    return "" if isinstance(message, str) else message.system_properties.message_id


def bodies(messages: Sequence[Any]) -> list[bytes]:
    """What is in messages."""
    return [message.body for message in messages]


def codes(response: Any) -> list[int]:
    """The code of the whole, then that of each entry."""
    return [response.status.code, *(entry.status.code for entry in response.entries)]

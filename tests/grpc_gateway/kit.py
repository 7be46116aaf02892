"""What the tests of the gRPC service share: a core that answers from memory, and calls to make."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.clients.server_push import TELEMETRY_PUSH
from grpc_gateway.consuming import receipt_handle as receipt
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.definition_pb2 import (
    UA,
    Address,
    AddressScheme,
    ClientType,
    Endpoints,
    FilterExpression,
    FilterType,
    Language,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from remoting import command as commands
from remoting import messages, properties
from remoting.command import RemotingCommand
from remoting.errors import TopicNotExist
from remoting.messages import StoredMessage
from remoting.properties import MessageType
from remoting.routes import TopicRoute, parse
from remoting.topic_group_config import GroupConfig, TopicConfig

Answer = Callable[[RemotingCommand], RemotingCommand | Exception]

PEER = Peer(HostPort("192.0.2.7", 50000), HostPort("198.51.100.9", 8080))
ENDPOINTS = Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host="198.51.100.9", port=8080)])


@dataclass
class FakeCore:
    """Brokers in memory. `routes`, `topics` and `groups` by name; `answer` is what brokers say."""

    routes: dict[str, TopicRoute] = field(default_factory=dict)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    answer: Answer = lambda command: commands.success()
    # Where set, answers wait here for the test to give them.
    pending: list["asyncio.Future[RemotingCommand]"] | None = None
    told: HostPort | None = None
    # Who wants to know when a group changes.
    listeners: list[Callable[[GroupConfig], None]] = field(default_factory=list)
    # Every command as it came: (client, code, ext fields, body).
    handled: list[tuple[Any, int, dict[str, str], bytes]] = field(default_factory=list)

    def handle(self, channel: Any, command: RemotingCommand) -> "asyncio.Future[RemotingCommand] | None":
        self.handled.append((channel, command.code, dict(command.fields), command.body))
        if command.is_oneway:
            return None
        reply: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        if self.pending is not None:
            self.pending.append(reply)
            return reply
        answer = self.answer(command)
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
        return reply

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self.routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        if topic not in self.routes:
            raise TopicNotExist(f"no route info of topic {topic}")
        return self.routes[topic]

    def cached_topic(self, topic: str) -> TopicConfig | None:
        return self.topics.get(topic)

    async def topic(self, topic: str) -> TopicConfig:
        return self.topics.get(topic, TopicConfig(topic, MessageType.UNSPECIFIED))

    def cached_group(self, group: str) -> GroupConfig | None:
        return self.groups.get(group)

    async def group(self, group: str) -> GroupConfig:
        return self.groups.get(group, GroupConfig(group))

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        self.listeners.append(listener)

    def address(self, peer: Peer) -> HostPort | None:
        return self.told

    @property
    def fields(self) -> list[dict[str, str]]:
        """The ext fields of all commands."""
        return [fields for _, _, fields, _ in self.handled]


class FakeConnection:
    """Where calls come from."""

    def __init__(self, peer: Peer = PEER) -> None:
        self.peer = peer
        self.closed = False


class Aborted(Exception):
    """The handler ended the call with a gRPC status."""


class FakeContext:
    """A call without a transport. `aborted` is the gRPC status that the handler chose."""

    def __init__(
        self, remaining: float | None = None, connection: FakeConnection | None = None, **metadata: str
    ) -> None:
        self.connection = connection
        self.aborted: tuple[Any, str] | None = None
        self.callbacks: list[Callable[[Any], object]] = []
        self._remaining = remaining
        self._metadata = tuple((name.replace("_", "-"), value) for name, value in metadata.items())

    def time_remaining(self) -> float | None:
        return self._remaining

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:192.0.2.7:50000"

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    async def abort(self, code: Any, details: str = "") -> None:
        self.aborted = (code, details)
        raise Aborted(details)

    def end(self) -> None:
        """The call is over, whatever its handler thinks."""
        for callback in self.callbacks:
            callback(self)


def make_client(client_id: str = "c1", peer: Peer = PEER) -> Client:
    """Return a client without settings."""
    return Client(client_id, peer, TELEMETRY_PUSH)


def call(client: Client | None = None, remaining: float | None = None) -> Rpc:
    """A call of a client that has told us nothing yet."""
    return Rpc(make_client() if client is None else client, FakeContext(remaining), PEER)


def route(topic: str = "orders", *brokers: str, read: int = 4, write: int = 4, perm: int = 6) -> TopicRoute:
    """A topic on these brokers (broker-a where none is given)."""
    brokers = brokers or ("broker-a",)
    queues = [{"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm} for name in brokers]
    datas = [{"cluster": "c", "brokerName": name, "brokerAddrs": {"0": f"{name}:10911"}} for name in brokers]
    return parse(topic, orjson.dumps({"queueDatas": queues, "brokerDatas": datas}))


def resource(name: str = "orders") -> Resource:
    return Resource(name=name)


def stored(offset: int, body: bytes = b"body", topic: str = "orders", **pairs: str) -> StoredMessage:
    """A message in queue 1 of a topic, as its broker keeps it; `pairs` are properties."""
    return StoredMessage(
        topic=topic,
        body=body,
        properties=properties.encode({"UNIQ_KEY": f"id-{offset}", **pairs}),
        queue_id=1,
        queue_offset=offset,
        commit_log_offset=1_000 + offset,
        store_host=("198.51.100.1", 10911),
    )


def pop_answer(*found: StoredMessage, pop_time: int | None = None, invisible: int = 60_000) -> RemotingCommand:
    """What a broker answers that pops these messages (in the order of their offsets)."""
    fields = {
        "popTime": str(time.time_ns() // 1_000_000 if pop_time is None else pop_time),
        "invisibleTime": str(invisible),
        "reviveQid": "0",
        "startOffsetInfo": f"0 1 {found[0].queue_offset}",
        "msgOffsetInfo": f"0 1 {','.join(str(one.queue_offset) for one in found)}",
    }
    return commands.success(fields, b"".join(messages.encode_message(one) for one in found))


def receipt_handle(
    offset: int = 5,
    *,
    age: float = 0.0,
    invisible: float = 60.0,
    order: bool = False,
    renewal_id: str = "",
    **changes: Any,
) -> ReceiptHandle:
    """The handle of a message popped `age` seconds ago for `invisible` seconds."""
    fields: dict[str, Any] = {
        "start_offset": offset,
        "pop_time": int((time.time() - age) * 1000),
        "invisible_time": int(invisible * 1000),
        "revive_queue_id": 999 if order else 0,
        "retry": "0",
        "broker_name": "broker-a",
        "queue_id": 1,
        "queue_offset": offset,
        "commit_log_offset": 1_000 + offset,
        "renewal_id": renewal_id,
    }
    return receipt.make_handle(**{**fields, **changes})


# Settings, and telemetry without a transport.


def producer_settings(*topics: str, language: Language = Language.JAVA) -> Settings:
    """A producer of these topics (orders where none is given)."""
    publishing = Publishing(topics=map(resource, topics or ("orders",)))
    return Settings(client_type=ClientType.PRODUCER, publishing=publishing, user_agent=UA(language=language))


def consumer_settings(
    group: str = "g",
    topics: Sequence[str] = ("orders",),
    kind: ClientType = ClientType.PUSH_CONSUMER,
    language: Language = Language.JAVA,
    expression: str = "*",
) -> Settings:
    """A consumer of these topics."""
    everything = FilterExpression(type=FilterType.TAG, expression=expression)
    entries = [SubscriptionEntry(topic=resource(topic), expression=everything) for topic in topics]
    subscription = Subscription(group=resource(group), subscriptions=entries)
    return Settings(client_type=kind, subscription=subscription, user_agent=UA(language=language))

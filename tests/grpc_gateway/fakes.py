"""Fakes of the messaging core and of rpcs, for the tests of the gRPC service."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.clients.server_push import TELEMETRY_PUSH
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.definition_pb2 import (
    Address,
    AddressScheme,
    Endpoints,
)
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import TopicNotExist
from remoting.properties import MessageType
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig, TopicConfig

Answer = Callable[[RemotingCommand], RemotingCommand | Exception]

PEER = Peer(HostPort("192.0.2.7", 50000), HostPort("198.51.100.9", 8080))
ENDPOINTS = Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host="198.51.100.9", port=8080)])


@dataclass
class FakeCore:
    """A core with brokers in memory.

    routes, topics, groups: by name. answer: returns the brokers' reply to a command. pending: if set, replies are
    appended to it, for the test to complete. advertised: advertised address of every client. handled: client, code,
    ext fields and body of each command.
    """

    own = "own"
    routes: dict[str, TopicRoute] = field(default_factory=dict)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    answer: Answer = lambda command: commands.success()
    pending: list["asyncio.Future[RemotingCommand]"] | None = None
    advertised: HostPort | None = None
    listeners: list[Callable[[GroupConfig], None]] = field(default_factory=list)
    unresponsive: frozenset[str] = frozenset()
    unread_limit: int = 8 * 2**20
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

    async def own_request(self, broker: str, command: RemotingCommand) -> RemotingCommand:
        reply = self.handle(self.own, command)
        assert reply is not None
        return await reply

    async def leave(self, channel: Any, producers: Iterable[str] = (), consumers: Iterable[str] = ()) -> None:
        """Handle an UNREGISTER_CLIENT of each group."""
        fields = [{"consumerGroup": group} for group in consumers]
        fields += [{"producerGroup": topic} for topic in sorted(producers)]
        for group in fields:
            reply = self.handle(
                channel, commands.request(RequestCode.UNREGISTER_CLIENT, {**group, "clientID": channel.client_id})
            )
            assert reply is not None
            await reply

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self.routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        if topic not in self.routes:
            raise TopicNotExist(f"No topic route info in name server for the topic: {topic}")
        return self.routes[topic]

    def unresponsive_brokers(self) -> frozenset[str]:
        return self.unresponsive

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
        return self.advertised

    @property
    def fields(self) -> list[dict[str, str]]:
        """The ext fields of all commands."""
        return [fields for _, _, fields, _ in self.handled]


class FakeConnection:
    """The connection of an rpc."""

    def __init__(self, peer: Peer = PEER) -> None:
        self.peer = peer
        self.closed = False


class Aborted(Exception):
    """Raised by `FakeContext.abort`."""


class FakeContext:
    """The context of an rpc without a transport.

    aborted: gRPC status and text of `abort`. responses: written ones.
    """

    def __init__(
        self, remaining: float | None = None, connection: FakeConnection | None = None, **metadata: str
    ) -> None:
        self.connection = connection
        self.aborted: tuple[Any, str] | None = None
        self.callbacks: list[Callable[[Any], object]] = []
        self.responses: list[Any] = []
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

    async def write(self, response: Any) -> None:
        self.responses.append(response)

    async def abort(self, code: Any, details: str = "") -> None:
        self.aborted = (code, details)
        raise Aborted(details)

    def end(self) -> None:
        """Call the done callbacks."""
        for callback in self.callbacks:
            callback(self)


class Written:
    """Takes the responses of a stream. kind: their message class."""

    def __init__(self, kind: Any) -> None:
        self.responses: list[Any] = []
        self._kind = kind

    async def write(self, responses: list[bytes]) -> None:
        """Take serialized responses."""
        self.responses += map(self._kind.FromString, responses)


def make_client(client_id: str = "c1", peer: Peer = PEER) -> Client:
    """Return a client without settings."""
    return Client(client_id, peer, TELEMETRY_PUSH)


def make_rpc(client: Client | None = None, remaining: float | None = None) -> Rpc:
    """Return an rpc of a client without settings."""
    return Rpc(make_client() if client is None else client, FakeContext(remaining), PEER)

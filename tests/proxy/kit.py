"""What the tests of the core share: a clock to set, channels that record, a backend that answers from memory."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from protocol_negotiation.peer import HostPort, Peer
from proxy.core import membership
from proxy.core.advertised_listeners import ListenerRoutes
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.checks import well_formed
from proxy.core.client_registry import Change, ClientRegistry, Groups
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.handlers import HANDLERS
from proxy.core.messaging import Messaging
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS, RequestSpec
from remoting.routes import TopicRoute, parse

DEFAULTS = Settings()
Reply = asyncio.Future[RemotingCommand]
Answer = Callable[[str, RemotingCommand], RemotingCommand | Exception]


@dataclass
class Clock:
    """Seconds, moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def peer(address: str = "192.0.2.7:50000", local: str = "198.51.100.9:8080", **more: Any) -> Peer:
    return Peer(HostPort.parse(address), HostPort.parse(local), **more)


@dataclass(eq=False)
class FakeChannel:
    """A client that keeps what it is asked and told, and answers what `answers` says."""

    peer: Peer = field(default_factory=peer)
    protocol: ChannelProtocol = "remoting"
    closed: bool = False
    goes_away: bool = True
    represented: bool = False
    departure: str = "unregistered"
    asked: list[RemotingCommand] = field(default_factory=list)
    told: list[RemotingCommand] = field(default_factory=list)
    holds: int = 0
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = Session(str(self.peer.address))

    @property
    def identity(self) -> Identity:
        return Identity(self.session.client_id, self.session.language or None, None)

    def request(self, command: RemotingCommand, timeout: float) -> Reply:
        self.asked.append(command)
        reply: Reply = asyncio.get_running_loop().create_future()
        reply.set_result(commands.success({"answered by": str(self.session.client_id)}))
        return reply

    def oneway(self, command: RemotingCommand) -> None:
        self.told.append(command)

    def pause(self) -> None:
        self.holds += 1

    def resume(self) -> None:
        self.holds -= 1


@dataclass(frozen=True)
class Sent:
    """A request as it reached a broker."""

    broker: str
    code: int
    fields: dict[str, str]
    body: bytes
    timeout: float | None


@dataclass
class FakeBackend:
    """Brokers in memory. `warm` and `cold` are routes at hand and to be loaded; `answer` is what brokers say."""

    warm: dict[str, TopicRoute] = field(default_factory=dict)
    cold: dict[str, TopicRoute | Exception] = field(default_factory=dict)
    names: Collection[str] = ()
    answer: Answer = lambda broker, command: commands.success({"served by": broker}, b"{}")
    pending: list[Reply] | None = None
    sent: list[Sent] = field(default_factory=list)
    enrolled: list[tuple[FakeChannel, Groups, frozenset[str]]] = field(default_factory=list)
    withdrawn: list[tuple[FakeChannel, Groups]] = field(default_factory=list)
    farewells: list[RemotingCommand | None] = field(default_factory=list)
    withdrawing: asyncio.Event | None = None

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self.warm.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        await asyncio.sleep(0)
        found = self.cold.get(topic) or self.warm.get(topic) or TopicNotExist(f"no route info of topic {topic}")
        if isinstance(found, Exception):
            raise found
        return found

    async def brokers(self) -> Collection[str]:
        if not self.names:
            raise ServiceUnavailable("no name server can be reached")
        return self.names

    def request(self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Any) -> Reply:
        self.sent.append(Sent(broker, command.code, dict(command.fields), command.body, timeout))
        reply: Reply = asyncio.get_running_loop().create_future()
        if self.pending is not None:
            self.pending.append(reply)
            return reply
        answer = self.answer(broker, command)
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
        return reply

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Any) -> None:
        self.sent.append(Sent(broker, command.code, dict(command.fields), command.body, None))

    async def forget(self, topic: str) -> None:
        self.warm.pop(topic, None)

    def knows(self, broker: str) -> bool:
        return True

    def enroll(self, channel: Any, groups: Groups, brokers: Collection[str]) -> Coroutine[Any, Any, None]:
        async def enrolling() -> None:
            self.enrolled.append((channel, groups, frozenset(brokers)))

        return enrolling()

    def withdraw(
        self, channel: Any, groups: Groups, farewell: RemotingCommand | None = None
    ) -> Coroutine[Any, Any, None]:
        async def withdrawing() -> None:
            self.withdrawn.append((channel, groups))
            self.farewells.append(farewell)
            if self.withdrawing is not None:
                await self.withdrawing.wait()

        return withdrawing()


@dataclass
class Stage:
    """The core between fake clients and fake brokers; `observed` is every (code's name, response code)."""

    core: Messaging
    backend: FakeBackend
    registry: ClientRegistry
    observed: list[tuple[str, int]]
    changes: list[Change]

    async def ask(self, command: RemotingCommand, channel: FakeChannel | None = None) -> RemotingCommand:
        """The core's answer; refusals are raised."""
        reply = self.core.handle(FakeChannel() if channel is None else channel, command)
        assert reply is not None
        return await reply

    async def handle(self, command: RemotingCommand, channel: FakeChannel, now: float) -> RemotingCommand:
        """The answer of the code's handler, at a time of the test's choice."""
        handling = HANDLERS[command.code](self.core, Context(channel, command, REQUESTS[command.code], now))
        assert handling is not None
        return await handling


def stage(
    backend: FakeBackend | None = None,
    settings: Settings | None = None,
    handlers: Mapping[int, Any] = HANDLERS,
    addresses: ListenerRoutes | None = None,
) -> Stage:
    backend = FakeBackend() if backend is None else backend
    observed: list[tuple[str, int]] = []
    changes: list[Change] = []
    registry = ClientRegistry()
    core = Messaging(
        DEFAULTS if settings is None else settings,
        registry,
        handlers,
        forward,
        (well_formed,),
        (lambda seen: observed.append((seen.code, seen.response)),),
        (membership.notify, lambda _, change: changes.append(change)),
        ListenerRoutes() if addresses is None else addresses,
    )
    core.backend = backend
    return Stage(core, backend, registry, observed, changes)


def route(topic: str = "orders", *brokers: str) -> TopicRoute:
    """A topic on these brokers (broker-a where none is given), each with four queues and one slave."""
    brokers = brokers or ("broker-a",)
    queues = [{"brokerName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in brokers]
    datas = [
        {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": f"{name}:10911", "1": f"{name}-slave:10911"}}
        for name in brokers
    ]
    return parse(topic, orjson.dumps({"queueDatas": queues, "brokerDatas": datas}))


def request(code: int, body: bytes = b"", oneway: bool = False, /, **fields: object) -> RemotingCommand:
    return commands.request(code, {name: str(value) for name, value in fields.items()}, body, oneway)


def java(command: RemotingCommand, version: int) -> RemotingCommand:
    """The command as a Java client of this version number sends it."""
    command.header.update(language="JAVA", version=version)
    return command


def heartbeat(
    client_id: str = "c1",
    consumers: Mapping[str, Sequence[str]] | None = None,
    producers: Sequence[str] = (),
    model: str = "CLUSTERING",
) -> RemotingCommand:
    """HEART_BEAT of consumers, topics by group, and producers."""
    data = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in producers],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": model,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": "*"} for topic in topics],
            }
            for group, topics in (consumers or {}).items()
        ],
    }
    return request(RequestCode.HEART_BEAT, orjson.dumps(data))


# A value for every field that some request requires.
VALUES = {
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 1 0",
    "recallHandle": "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgQUJD",
    "consumerGroup": "g",
    "producerGroup": "p",
    "group": "g",
    "topic": "orders",
    "clientId": "c1",
    "clientID": "c1",
    "a": "p",
    "b": "orders",
    "key": "k",
}


def complete(spec: RequestSpec, **more: str) -> RemotingCommand:
    """A request with every field that its row requires, for broker-a."""
    fields = {name: VALUES.get(name, "0") for name in spec.required}
    body = BODIES.get(spec.code, b"")
    return commands.request(spec.code, {**fields, spec.broker: "broker-a", **more}, body)


BODIES: dict[int, bytes] = {
    RequestCode.HEART_BEAT: heartbeat().body,
    RequestCode.LOCK_BATCH_MQ: b'{"mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}',
    RequestCode.CHECK_CLIENT_CONFIG: b'{"subscriptionData":{"topic":"orders"}}',
    RequestCode.QUERY_ASSIGNMENT: b'{"topic":"orders"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"brokerName":"broker-a","acks":[]}',
}


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)

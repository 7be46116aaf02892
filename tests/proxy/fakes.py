"""Fakes for tests of the core: a clock, channels that record requests, a backend in memory."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol_negotiation.peer import HostPort, Peer
from proxy.core import membership
from proxy.core.advertised_listeners import ListenerRoutes
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.checks import well_formed
from proxy.core.client_registry import ClientRegistry, ConsumerGroupChange, Groups
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.handlers import HANDLERS
from proxy.core.messaging import Messaging
from proxy.core.principal import OWN, Principal
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, Overloaded, ServiceUnavailable, TopicNotExist
from remoting.outcomes import Reply
from remoting.requests import REQUESTS, RequestSpec
from remoting.routes import TopicRoute

DEFAULTS = Settings()
Answer = Callable[[str, RemotingCommand], RemotingCommand | Exception]


@dataclass
class Clock:
    """A clock in seconds that tests set."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def peer(address: str = "192.0.2.7:50000", local: str = "198.51.100.9:8080", **more: Any) -> Peer:
    return Peer(HostPort.parse(address), HostPort.parse(local), **more)


@dataclass(eq=False)
class FakeChannel:
    """A client that records requests and oneway requests and answers with its id, or with an error."""

    peer: Peer = field(default_factory=peer)
    protocol: ChannelProtocol = "remoting"
    observed: bool = True
    closed: bool = False
    supports_go_away: bool = True
    producers_represented: bool = False
    representative: bool = False
    leave_cause: str = "unregistered"
    signs: bool = True
    principal: Principal = OWN
    requests: list[RemotingCommand] = field(default_factory=list)
    oneways: list[RemotingCommand] = field(default_factory=list)
    answer: Exception | None = None
    pauses: int = 0
    unread_bytes: int = 0
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = Session(str(self.peer.address))

    @property
    def identity(self) -> Identity:
        return Identity(self.session.client_id, self.session.language or None, None)

    def request(self, command: RemotingCommand, timeout: float) -> Reply:
        self.requests.append(command)
        reply: Reply = asyncio.get_running_loop().create_future()
        if self.answer is None:
            reply.set_result(commands.success({"answered by": str(self.session.client_id)}))
        else:
            reply.set_exception(self.answer)
        return reply

    def oneway(self, command: RemotingCommand) -> None:
        self.oneways.append(command)

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1


@dataclass(frozen=True)
class Sent:
    """A request as a broker received it."""

    broker: str
    code: int
    fields: dict[str, str]
    body: bytes
    timeout: float | None


@dataclass
class FakeBackend:
    """Brokers in memory. warm, cold: cached routes and routes to be loaded; answer: returns the brokers' replies.

    asked: the requests to name servers, with whether they are for all of them.
    """

    warm: dict[str, TopicRoute] = field(default_factory=dict)
    cold: dict[str, TopicRoute | Exception] = field(default_factory=dict)
    names: Collection[str] = ()
    answer: Answer = lambda broker, command: commands.success({"served by": broker}, b"{}")
    pending: list[Reply] | None = None
    sent: list[Sent] = field(default_factory=list)
    asked: list[tuple[int, dict[str, str], bool]] = field(default_factory=list)
    registered: list[tuple[FakeChannel, Groups, frozenset[str]]] = field(default_factory=list)
    unregistered: list[tuple[FakeChannel, Groups]] = field(default_factory=list)
    unregister_commands: list[RemotingCommand | None] = field(default_factory=list)
    registering: asyncio.Event | None = None
    unregistering: asyncio.Event | None = None
    # Answers to heartbeats: the remark of a denial, else whether one arrives.
    denial: str | None = None
    refusal: str | None = None
    accepts: bool = True
    created: list[str] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    unresponsive_brokers: frozenset[str] = frozenset()

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self.warm.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        await asyncio.sleep(0)
        found = (
            self.cold.get(topic)
            or self.warm.get(topic)
            or TopicNotExist(f"No topic route info in name server for the topic: {topic}")
        )
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

    async def clusters(self) -> Mapping[str, str]:
        return dict.fromkeys(self.names, "DefaultCluster")

    def broker_at(self, address: str) -> str | None:
        return self.addresses.get(address)

    def topic_created(self, topic: str) -> None:
        self.created.append(topic)

    async def query_name_server(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        self.asked.append((code, fields, False))
        return commands.success(body=b"a name server's")

    async def change_name_servers(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        self.asked.append((code, fields, True))
        return commands.success()

    async def forget_topic(self, topic: str) -> None:
        self.warm.pop(topic, None)

    def has_broker(self, broker: str) -> bool:
        return True

    def register(
        self, channel: Any, groups: Groups, brokers: Collection[str]
    ) -> Coroutine[Any, Any, RemotingCommand | None]:
        async def registering() -> RemotingCommand | None:
            self.registered.append((channel, groups, frozenset(brokers)))
            heartbeat: RemotingCommand | None = channel.session.membership.heartbeat
            if self.registering is not None:
                await self.registering.wait()
            if self.denial is not None:
                raise NotPermitted(self.denial)
            if self.refusal is not None:
                raise Overloaded(self.refusal)
            accepted = self.accepts and channel.session.membership.heartbeat is heartbeat
            return heartbeat if accepted and brokers else None

        return registering()

    def unregister(
        self, channel: Any, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> Coroutine[Any, Any, None]:
        async def unregistering() -> None:
            self.unregistered.append((channel, groups))
            self.unregister_commands.append(unregister_command)
            if self.unregistering is not None:
                await self.unregistering.wait()

        return unregistering()


@dataclass
class Stage:
    """The core between fake clients and fake brokers; `observed` has (code name, response code) per request."""

    core: Messaging
    backend: FakeBackend
    registry: ClientRegistry
    observed: list[tuple[str, int]]
    changes: list[ConsumerGroupChange]

    async def ask(self, command: RemotingCommand, channel: FakeChannel | None = None) -> RemotingCommand:
        """Return the core's reply. Raises the error of a rejected request."""
        reply = self.core.handle(FakeChannel() if channel is None else channel, command)
        assert reply is not None
        return await reply

    async def handle(self, command: RemotingCommand, channel: FakeChannel, now: float) -> RemotingCommand:
        """Return the reply of the code's handler at time `now`."""
        handling = HANDLERS[command.code](self.core, Context(channel, command, REQUESTS[command.code], now))
        assert handling is not None
        return await handling


def stage(
    backend: FakeBackend | None = None,
    settings: Settings | None = None,
    handlers: Mapping[int, Any] = HANDLERS,
    addresses: ListenerRoutes | None = None,
    requests: Mapping[int, RequestSpec] = REQUESTS,
) -> Stage:
    backend = FakeBackend() if backend is None else backend
    observed: list[tuple[str, int]] = []
    changes: list[ConsumerGroupChange] = []
    registry = ClientRegistry()
    core = Messaging(
        DEFAULTS if settings is None else settings,
        registry,
        backend,
        handlers=handlers,
        forward=forward,
        checks=(well_formed,),
        requests=requests,
        observers=(lambda seen: observed.append((seen.code, seen.response)),),
        listeners=(membership.notify, lambda _, change: changes.append(change)),
    )
    if addresses is not None:
        core.listener_routes = addresses
    return Stage(core, backend, registry, observed, changes)


async def settle() -> None:
    """Run all callbacks and tasks that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)

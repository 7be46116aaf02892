"""A membership between fake clients and fake connections to brokers."""

from dataclasses import dataclass, field
from typing import Any, cast

from proxy.backends.cluster.connection_budget import ConnectionBudget
from proxy.backends.cluster.membership import Membership
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.client_registry import Groups
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ServiceUnavailable
from remoting.outcomes import Reply
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import heartbeat, java

BEAT, BYE = RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT
A = ("broker-a",)


@dataclass(eq=False)
class FakeServer:
    """A connection to a broker that answers at once, or when the test permits it."""

    bench: "Bench"
    address: str
    handler: Handler
    on_lost: Any
    connection: RemotingConnection | None = cast(RemotingConnection, "connected")  # noqa: RUF009
    requests: list[RemotingCommand] = field(default_factory=list)
    closed: bool = False

    def request(self, command: RemotingCommand, timeout: float, future: Reply) -> None:
        assert not self.closed
        self.requests.append(command)
        if self.address in self.bench.down:
            future.set_exception(ServiceUnavailable(f"{self.address} cannot be reached"))
        elif self.bench.held is not None:
            self.bench.held.append(future)
        else:
            future.set_result(commands.success())

    def push(self, command: RemotingCommand) -> Reply | None:
        """Receive a request of the broker over this connection."""
        return self.handler(cast(RemotingConnection, None), command)

    def lose(self) -> None:
        self.connection = None
        self.on_lost(self)

    def connect(self) -> None:
        self.connection = cast(RemotingConnection, "connected again")

    def close(self) -> None:
        self.closed = True

    @property
    def received(self) -> list[str]:
        """The requests that the broker received: +client for HEART_BEAT, -group for UNREGISTER_CLIENT."""
        return [_describe(command) for command in self.requests]


def _describe(command: RemotingCommand) -> str:
    if command.code == BEAT:
        return f"+{command.fields['who']}"
    return "-" + (command.fields.get("consumerGroup") or command.fields["producerGroup"])


class Bench:
    """A membership between clients and fake connections."""

    def __init__(self, **brokers: list[str]) -> None:
        self.brokers = {name.replace("_", "-"): addresses for name, addresses in brokers.items()}
        self.servers: list[FakeServer] = []
        self.down: set[str] = set()
        self.held: list[Reply] | None = None
        self.pushed: list[tuple[FakeChannel, RemotingCommand]] = []
        self.budget = ConnectionBudget(1_000)
        self.membership = Membership(self._link, lambda name: self.brokers.get(name, ()), self._push, self.budget)

    def _link(self, address: str, handler: Handler, on_lost: Any) -> ServerConnection:
        self.servers.append(FakeServer(self, address, handler, on_lost))
        return cast(ServerConnection, self.servers[-1])

    def _push(self, channel: Any, command: RemotingCommand) -> Reply | None:
        self.pushed.append((channel, command))
        return None

    async def join(
        self,
        client: FakeChannel,
        *groups: str,
        producers: tuple[str, ...] = (),
        at: tuple[str, ...] = A,
        who: str | None = None,
    ) -> None:
        joined = Groups(frozenset(producers), frozenset(groups))
        client.session.membership.heartbeat = beat(client, who)
        await self.membership.register(client, joined, at)

    async def leave(
        self,
        client: FakeChannel,
        *groups: str,
        producers: tuple[str, ...] = (),
        unregister_command: RemotingCommand | None = None,
    ) -> None:
        await self.membership.unregister(client, Groups(frozenset(producers), frozenset(groups)), unregister_command)

    @property
    def open(self) -> list[FakeServer]:
        return [server for server in self.servers if not server.closed]

    def answer(self) -> None:
        """Let the brokers answer all pending requests, and later ones at once."""
        held, self.held = self.held or [], None
        for future in held:
            future.set_result(commands.success())


def client(name: str) -> FakeChannel:
    channel = FakeChannel()
    session = channel.session
    session.client_id, session.language, session.version = name, "JAVA", 479
    return channel


def beat(channel: FakeChannel, who: str | None = None) -> RemotingCommand:
    command = java(heartbeat(str(channel.session.client_id)), 479)
    command.fields["who"] = who or str(channel.session.client_id)
    return command

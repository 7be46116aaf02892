import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from proxy.backends.cluster import membership
from proxy.backends.cluster.membership import Membership
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.client_registry import INNER_PRODUCER, Groups
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import BodyError, ConsumerNotOnline, ServiceUnavailable, UnsupportedRequest
from tests.proxy.fakes import FakeChannel, Reply, settle
from tests.proxy.messages import heartbeat, java, request

pytestmark = pytest.mark.anyio

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
        self.membership = Membership(self._link, lambda name: self.brokers.get(name, ()), self._push)

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
        client.session.heartbeat = beat(client, who)
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


@pytest.fixture
def bench() -> Bench:
    return Bench(broker_a=["a:1", "a:2"], broker_b=["b:1"])


async def test_register_reaches_masters_and_slaves(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-a", "broker-b"))
    assert {server.address: server.received for server in bench.servers} == {
        "a:1": ["+c1"],
        "a:2": ["+c1"],
        "b:1": ["+c1"],
    }
    assert bench.membership.connections == 3


async def test_each_broker_receives_its_own_copy_of_the_command(bench: Bench) -> None:
    await bench.join(client("c1"), "g")
    first, second = (server.requests[0] for server in bench.servers)
    assert first.header is not second.header
    assert first.body is second.body


async def test_register_returns_when_all_brokers_answered_or_failed(bench: Bench) -> None:
    bench.held, bench.down = [], {"a:1"}
    joining = asyncio.ensure_future(bench.join(client("c1"), "g"))
    await settle()
    assert not joining.done()
    bench.answer()
    await joining


async def test_only_members_of_one_group_need_separate_connections(bench: Bench) -> None:
    await bench.join(client("c1"), "g", at=("broker-b",))
    await bench.join(client("c2"), "h", at=("broker-b",))
    await bench.join(client("c3"), "g", at=("broker-b",))
    assert [server.received for server in bench.servers] == [["+c1", "+c2"], ["+c3"]]


async def test_unregister_sends_the_clients_identity_for_each_group_to_each_broker(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", "h", producers=("p", INNER_PRODUCER))
    await bench.leave(c1, "g", "h", producers=("p", INNER_PRODUCER))
    for server in bench.servers:
        assert server.received == ["+c1", "-g", "-h", "-p"]
        assert all(bye.fields["clientID"] == "c1" for bye in server.requests[1:])
        assert {(bye.header["language"], bye.header["version"]) for bye in server.requests[1:]} == {("JAVA", 479)}
    assert bench.membership.connections == 0


async def test_register_sends_the_latest_heartbeat(bench: Bench) -> None:
    c1 = client("c1")
    bench.held = []
    joining = [asyncio.ensure_future(bench.join(c1, "g", at=("broker-b",), who=who)) for who in ("old", "new")]
    await settle()
    c1.session.heartbeat = beat(c1, "newest")
    bench.answer()
    await asyncio.gather(*joining)
    assert bench.servers[0].received == ["+new", "+newest"], "the second heartbeat had come before the first went out"


async def test_oneway_request_is_sent_to_brokers_as_a_request_with_response(bench: Bench) -> None:
    """An unanswered request would close a connection that many clients share."""
    c1 = client("c1")
    c1.session.heartbeat = request(BEAT, b"", True, who="c1")
    await bench.membership.register(c1, Groups(consumers=frozenset("g")), ["broker-b"])
    await bench.leave(c1, "g", unregister_command=request(BYE, b"", True, clientID="c1", consumerGroup="g"))
    (server,) = bench.servers
    assert server.received == ["+c1", "-g"]
    assert not any(command.is_oneway for command in server.requests)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_REPLY_TIMEOUT", 0.02)


@pytest.mark.usefixtures("impatient")
async def test_register_does_not_wait_for_a_silent_broker(bench: Bench) -> None:
    bench.held = []
    async with asyncio.timeout(30):
        await bench.join(client("c1"), "g", at=("broker-b",))
    (held,) = bench.held
    assert not held.done(), "should it stay silent, the connection is given up"
    held.set_exception(ServiceUnavailable("given up"))
    await settle()


async def test_unregister_sends_the_clients_own_command(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", "h", producers=("p",))
    unregister_command = request(BYE, clientID="c1", consumerGroup="g", producerGroup="p", Signature="s")
    await bench.leave(c1, "g", producers=("p",), unregister_command=unregister_command)
    for server in bench.servers:
        (said,) = server.requests[1:]
        assert (said.code, said.fields, said.body) == (BYE, unregister_command.fields, b"")
        assert said.header is not unregister_command.header
    await bench.leave(c1, "h")
    assert [server.received[2:] for server in bench.servers] == [["-h"]] * 2


async def test_unregister_reaches_all_brokers_of_the_connection(bench: Bench) -> None:
    """Over every server of its connection, whether still listed or not, and over no other connection."""
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-a", "broker-b"))
    await bench.join(c2, "g", at=("broker-a", "broker-b"))
    bench.brokers = {}
    master, slave, other = bench.servers[:3]
    slave.connection = None
    await bench.leave(c1, "g")
    assert [server.received for server in (master, slave, other)] == [["+c1", "-g"], ["+c1"], ["+c1", "-g"]]
    assert [server.received for server in bench.servers[3:]] == [["+c2"]] * 3


async def test_empty_connection_is_closed_and_reopened_on_demand(bench: Bench) -> None:
    c1 = client("c1")
    for _ in range(2):
        await bench.join(c1, "g")
        assert len(bench.open) == 2
        await bench.leave(c1, "g")
        assert (bench.open, bench.membership.connections) == ([], 0)


async def test_client_that_leaves_one_group_stays_in_the_other(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", "h", at=("broker-b",))
    await bench.leave(c1, "g")
    assert (bench.servers[0].received, bench.open) == (["+c1", "-g"], bench.servers)
    bench.servers[0].push(request(40, consumerGroup="h"))
    assert [channel for channel, _ in bench.pushed] == [c1]


async def test_slot_is_not_reused_before_the_brokers_have_answered(bench: Bench) -> None:
    c1, c2, c3 = client("c1"), client("c2"), client("c3")
    await bench.join(c1, "g", at=("broker-b",))
    bench.held = []
    leaving = asyncio.ensure_future(bench.leave(c1, "g"))
    await settle()
    joining = asyncio.ensure_future(bench.join(c2, "g", at=("broker-b",)))
    await settle()
    assert [server.received for server in bench.servers] == [["+c1", "-g"], ["+c2"]]
    bench.answer()
    await asyncio.gather(leaving, joining)
    await bench.join(c3, "g", at=("broker-b",))
    assert [server.received for server in bench.open] == [["+c2"], ["+c3"]]


async def test_unregister_skips_brokers_without_a_registration(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.leave(c1, "g")
    await bench.leave(c1, "g")
    await bench.leave(client("stranger"), "g")
    assert [server.address for server in bench.servers] == ["b:1"]
    assert bench.servers[0].received == ["+c1", "-g"]


async def test_client_moves_if_its_new_group_is_taken_on_its_connection(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "h", at=("broker-b",))
    await bench.join(c2, "g", "h", at=("broker-b",))
    assert [server.received for server in bench.servers] == [["+c1", "+c2", "-h"], ["+c2"]]
    await bench.join(client("c3"), "h", at=("broker-b",))
    assert bench.servers[0].received[-1] == "+c3"


async def test_moved_client_is_registered_at_all_its_brokers_again(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-a",))
    await bench.join(c2, "h", at=("broker-a", "broker-b"))
    before = len(bench.servers)
    await bench.join(c2, "g", "h", at=("broker-a",))
    assert sorted(server.address for server in bench.servers[before:]) == ["a:1", "a:2", "b:1"]
    assert {tuple(server.received) for server in bench.servers[before:]} == {("+c2",)}


def test_retry_delay_is_short() -> None:
    assert 0 < membership._RETRY_DELAY < 5


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_RETRY_DELAY", 0)


@pytest.mark.usefixtures("at_once")
async def test_members_are_registered_again_after_a_lost_connection(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-a", "broker-b"))
    await bench.join(c2, "h", at=("broker-b",))
    master, slave, other = bench.servers
    slave.lose()
    slave.connect()
    await settle()
    assert (master.received, slave.received, sorted(other.received)) == (["+c1"], ["+c1", "+c1"], ["+c1", "+c2"])


@pytest.mark.usefixtures("at_once")
async def test_lost_broker_is_retried_until_it_returns(bench: Bench) -> None:
    await bench.join(client("c1"), "g", at=("broker-b",))
    (server,) = bench.servers
    bench.down = {"b:1"}
    server.lose()
    await settle()
    tries = len(server.received)
    assert tries > 2
    bench.down = set()
    server.connect()
    await settle()
    done = len(server.received)
    await settle()
    assert len(server.received) == done


@pytest.mark.usefixtures("at_once")
async def test_retries_end_without_members(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    (server,) = bench.servers
    bench.down = {"b:1"}
    server.lose()
    await settle()
    await bench.leave(c1, "g")
    await settle()
    tries = len(server.requests)
    await settle()
    assert len(server.requests) == tries


@pytest.mark.usefixtures("at_once")
async def test_number_of_retries_is_limited(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_MAX_RETRIES", 3)
    await bench.join(client("c1"), "g", at=("broker-b",))
    bench.down = {"b:1"}
    bench.servers[0].lose()
    await settle()
    assert bench.servers[0].received == ["+c1"] * 4


@pytest.mark.usefixtures("at_once")
async def test_unreachable_broker_is_retried(bench: Bench) -> None:
    bench.down = {"a:2"}
    await bench.join(client("c1"), "g")
    master, slave = bench.servers
    await settle()
    assert (master.received, len(slave.received) > 2) == (["+c1"], True)
    bench.down = set()
    await settle()
    done = len(slave.received)
    await settle()
    assert (len(slave.received), master.received) == (done, ["+c1"])


@pytest.mark.usefixtures("at_once", "impatient")
async def test_slow_broker_is_not_retried(bench: Bench) -> None:
    bench.held = []
    await bench.join(client("c1"), "g", at=("broker-b",))
    bench.answer()
    await settle()
    assert bench.servers[0].received == ["+c1"]


@pytest.mark.usefixtures("at_once")
async def test_broker_is_retried_by_one_task_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_MAX_RETRIES", 3)
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "g", at=("broker-b",))
    bench.down = {"b:1"}
    lost, other = bench.servers
    for server in (lost, lost, other):
        server.lose()
    bench.membership.register_at_new_addresses("broker-b", ["b:1"])
    await bench.join(c1, "g", at=("broker-b",))
    await settle()
    assert (lost.received, other.received) == (["+c1"] * (1 + 1 + 3), ["+c2"] * (1 + 3))


@pytest.mark.usefixtures("at_once")
async def test_leaving_client_is_not_registered_again_at_a_lost_broker(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "h", at=("broker-b",))
    bench.held = []
    leaving = asyncio.ensure_future(bench.leave(c1, "g"))
    await settle()
    (server,) = bench.servers
    server.lose()
    await settle()
    assert server.received == ["+c1", "+c2", "-g", "+c2"], "it is not the turn of the other"
    bench.answer()
    await leaving
    await settle()
    assert server.received == ["+c1", "+c2", "-g", "+c2"]


@pytest.mark.usefixtures("at_once")
async def test_left_group_is_not_registered_again(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", "h", at=("broker-b",))
    bench.held = []
    leaving = asyncio.ensure_future(bench.leave(c1, "g"))
    await settle()
    c1.session.heartbeat = beat(c1, "c1 without g")
    (server,) = bench.servers
    server.lose()
    await settle()
    bench.answer()
    await leaving
    await settle()
    assert server.received == ["+c1", "-g", "+c1 without g"]


@pytest.mark.usefixtures("at_once")
async def test_closed_client_is_not_registered_again(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "h", at=("broker-b",))
    c1.closed = True
    bench.servers[0].lose()
    await settle()
    assert bench.servers[0].received == ["+c1", "+c2", "+c2"]


@pytest.mark.usefixtures("at_once")
async def test_moved_client_is_not_registered_again_on_its_former_connection(bench: Bench) -> None:
    c1, c2 = client("c1"), client("c2")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "h", at=("broker-b",))
    bench.held = []
    moving = asyncio.ensure_future(bench.join(c2, "g", "h", at=("broker-b",)))
    await settle()
    (former,) = bench.servers
    former.lose()
    await settle()
    bench.answer()
    await moving
    await settle()
    assert [server.received for server in bench.servers] == [["+c1", "+c2", "-h", "+c1"], ["+c2"]]


async def test_members_are_registered_at_new_addresses_of_their_broker(bench: Bench) -> None:
    await bench.join(client("c1"), "g", at=("broker-a",))
    await bench.join(client("c2"), "g", at=("broker-a", "broker-b"))
    before = len(bench.servers)
    bench.brokers["broker-a"] = ["a:3"]
    bench.membership.register_at_new_addresses("broker-a", ["a:3"])
    bench.membership.register_at_new_addresses("broker-c", ["c:1"])
    await settle()
    new = bench.servers[before:]
    assert sorted((server.address, *server.received) for server in new) == [("a:3", "+c1"), ("a:3", "+c2")]


# Requests of brokers to clients.


def half_message(group: str) -> bytes:
    return messages.encode_message(messages.StoredMessage(topic="orders", properties=f"PGROUP\x01{group}\x02"))


def reply_to(client_id: str) -> dict[str, str]:
    return {"properties": f"REPLY_TO_CLIENT\x01{client_id}\x02"}


@pytest.mark.parametrize(
    ("push", "addressee"),
    [
        (request(39, half_message("p1")), "c1"),
        (request(39, half_message("p2")), "c2"),
        (request(40, consumerGroup="g"), "c1"),
        (request(40, consumerGroup="h"), "c2"),
        (request(220, group="g", topic="t"), "c1"),
        (request(221, group="h", topic="t"), "c2"),
        (request(307, consumerGroup="g", clientId="c1"), "c1"),
        (request(309, consumerGroup="h", clientId="c2"), "c2"),
        (request(326, **reply_to("c1")), "c1"),
        (request(326, **reply_to("c2")), "c2"),
        (request(200073, clientId="c1", liteTopic="a"), "c1"),
        (request(200073, clientId="c2", liteTopic="a"), "c2"),
    ],
)
async def test_broker_request_reaches_its_recipient(bench: Bench, push: RemotingCommand, addressee: str) -> None:
    c1, c2, elsewhere = client("c1"), client("c2"), client("c3")
    await bench.join(c1, "g", producers=("p1",), at=("broker-b",))
    await bench.join(c2, "h", producers=("p2",), at=("broker-b",))
    await bench.join(elsewhere, "g", "h", producers=("p1", "p2"), at=("broker-b",))
    shared, other = bench.servers
    command = commands.request(push.code, dict(push.fields), push.body)
    shared.push(command)
    assert [(channel.session.client_id, pushed) for channel, pushed in bench.pushed] == [(addressee, command)]
    assert command.fields["bname"] == "broker-b"
    if push.code not in {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.NOTIFY_UNSUBSCRIBE_LITE}:
        other.push(commands.request(push.code, dict(push.fields), push.body))
        assert bench.pushed[1][0] is elsewhere


async def test_server_for_returns_the_connection_of_the_registration(bench: Bench) -> None:
    c1, c2, unknown = client("c1"), client("c2"), client("c3")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "g", at=("broker-b",))
    address = bench.servers[0].address
    found: list[object] = [bench.membership.server_for(channel, address) for channel in (c1, c2)]
    assert found == list[object](bench.servers)
    assert bench.membership.server_for(c1, "elsewhere:1") is None
    assert bench.membership.server_for(unknown, address) is None


async def test_broker_name_in_a_request_is_kept(bench: Bench) -> None:
    await bench.join(client("c1"), "g", at=("broker-b",))
    bench.servers[0].push(request(40, consumerGroup="g", bname="broker-x"))
    assert bench.pushed[0][1].fields["bname"] == "broker-x"


@pytest.mark.parametrize(
    ("push", "error"),
    [
        (request(39, half_message("nobody")), ConsumerNotOnline),
        (request(39, b""), ConsumerNotOnline),
        (request(39, b"garbage"), BodyError),
        (request(40, consumerGroup="nobody"), ConsumerNotOnline),
        (request(40, consumerGroup="p1"), ConsumerNotOnline),
        (request(40), ConsumerNotOnline),
        (request(307), ConsumerNotOnline),
        (request(326, **reply_to("nobody")), ConsumerNotOnline),
        (request(326), ConsumerNotOnline),
        (request(10), UnsupportedRequest),
        (request(34), UnsupportedRequest),
    ],
)
async def test_broker_request_without_a_recipient_is_rejected(
    bench: Bench, push: RemotingCommand, error: type[Exception]
) -> None:
    await bench.join(client("c1"), "g", producers=("p1",), at=("broker-b",))
    with pytest.raises(error):
        bench.servers[0].push(commands.request(push.code, dict(push.fields), push.body))
    assert bench.pushed == []


async def test_closed_client_receives_no_broker_request(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    c1.closed = True
    with pytest.raises(ConsumerNotOnline):
        bench.servers[0].push(request(40, consumerGroup="g"))


async def test_client_that_rejoins_before_the_brokers_answered_keeps_its_slot(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    bench.held = []
    leaving = asyncio.ensure_future(bench.leave(c1, "g"))
    await settle()
    joining = asyncio.ensure_future(bench.join(c1, "g", at=("broker-b",)))
    await settle()
    bench.answer()
    await asyncio.gather(leaving, joining)
    assert bench.membership.connections == 1
    bench.open[-1].push(request(40, consumerGroup="g"))
    assert [channel for channel, _ in bench.pushed] == [c1]

"""Heartbeats about which brokers alone decide: a client is a member when a broker has accepted its heartbeat."""

import asyncio

import pytest

from proxy.core.client_registry import Groups, Role
from proxy.core.membership import leave
from proxy.core.signing import Signer, SigningPolicy
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, Overloaded, ServiceUnavailable
from remoting.signature import Credentials, sign, verify
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, settle, stage
from tests.proxy.messages import heartbeat, request, route

pytestmark = pytest.mark.anyio

OWN, ALICE = Credentials("gantry", "own-secret"), Credentials("alice", "alice-secret")
G = Groups(consumers=frozenset("g"))


def signed(command: RemotingCommand) -> RemotingCommand:
    sign(command, ALICE)
    return command


def beat(*topics: str, group: str = "g") -> RemotingCommand:
    return signed(heartbeat("c1", {group: list(topics)}))


@pytest.fixture
async def here() -> Stage:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a")}, names=("broker-a", "broker-b")))
    on.core.signing = SigningPolicy(Signer(OWN))
    return on


async def test_client_is_a_member_once_a_broker_has_accepted_its_heartbeat(here: Stage) -> None:
    here.backend.registering = asyncio.Event()
    client = FakeChannel()
    beats = [asyncio.ensure_future(here.handle(beat("orders"), client, 0)) for _ in range(2)]
    await settle()
    assert (len(here.registry), here.changes, here.registry.member(client)) == (0, [], None)
    assert not any(beating.done() for beating in beats), "an answer means that the client is a member"
    here.backend.registering.set()
    assert [(await beating).code for beating in beats] == [0, 0]
    assert (here.registry.consumer_ids("g"), len(here.changes)) == ({"c1"}, 1)
    assert here.registry.member(client) is not None
    assert here.backend.unregistered == []


@pytest.mark.parametrize("topics", [("unknown",), ()], ids=["of unknown topics", "without topics"])
async def test_a_broker_decides_about_a_heartbeat_without_brokers(here: Stage, topics: tuple[str, ...]) -> None:
    here.backend.unresponsive_brokers = frozenset({"broker-a"})
    here.backend.denial = "no permission"
    client = FakeChannel()
    with pytest.raises(NotPermitted):
        await here.handle(beat(*topics), client, 0)
    assert [brokers for *_, brokers in here.backend.registered] == [{"broker-b"}]
    assert (len(here.registry), here.registry.member(client)) == (0, None)
    assert here.backend.unregistered == [(client, G)]
    here.backend.denial = None
    await here.handle(beat(*topics), client, 1)
    assert here.registry.consumer_ids("g") == {"c1"}


@pytest.mark.parametrize("names", [("broker-a",), ()])
async def test_new_client_is_no_member_without_an_answer(here: Stage, names: tuple[str, ...]) -> None:
    here.backend.accepts, here.backend.names = False, names
    client = FakeChannel()
    with pytest.raises(ServiceUnavailable):
        await here.handle(beat(), client, 0)
    assert (len(here.registry), client.session.membership.heartbeat) == (0, None)
    assert here.backend.unregistered == [(client, G)]


async def test_member_remains_one_while_brokers_do_not_answer(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(beat("orders"), client, 0)
    here.backend.accepts = False
    await here.handle(beat("orders"), client, 30)
    assert here.registry.expired(100) == [], "its heartbeats count"
    with pytest.raises(ServiceUnavailable):
        await here.handle(beat("orders", group="victims"), client, 60)
    assert here.registry.consumer_ids("g") == {"c1"}
    assert here.registry.consumer_ids("victims") == set()
    kept = client.session.membership.heartbeat
    assert kept is not None
    assert kept.body == beat("orders").body, "brokers that come back get the one that they have accepted"
    assert here.backend.unregistered == [(client, Groups(consumers=frozenset({"victims"})))]


async def test_a_heartbeat_over_a_bound_ends_only_what_is_new(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(beat("orders"), client, 0)
    here.backend.refusal = "too many connections"
    with pytest.raises(Overloaded):
        await here.handle(beat("orders", group="victims"), client, 1)
    assert (here.registry.consumer_ids("g"), here.registry.consumer_ids("victims")) == ({"c1"}, set())
    kept = client.session.membership.heartbeat
    assert kept is not None
    assert kept.body == beat("orders").body
    assert here.backend.unregistered == [(client, Groups(consumers=frozenset({"victims"})))]


async def test_a_denied_heartbeat_ends_the_membership(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(beat("orders"), client, 0)
    here.backend.denial = "no permission"
    with pytest.raises(NotPermitted):
        await here.handle(beat("orders", group="victims"), client, 1)
    assert (len(here.registry), here.registry.member(client)) == (0, None)
    here.backend.denial = None
    here.backend.accepts = False
    with pytest.raises(ServiceUnavailable):
        await here.handle(beat("orders"), client, 2)
    assert len(here.registry) == 0, "what brokers accepted before the denial counts no more"


@pytest.mark.parametrize("close", [True, False])
async def test_client_that_leaves_before_the_answer_is_no_member(here: Stage, close: bool) -> None:
    here.backend.registering = asyncio.Event()
    client = FakeChannel()
    beating = asyncio.ensure_future(here.handle(beat("orders"), client, 0))
    await settle()
    if close:
        client.closed = True
        await leave(here.core, client)
    else:
        await here.handle(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g"), client, 0)
    here.backend.registering.set()
    await asyncio.wait((beating,))
    assert (beating.exception() is None) is close
    assert (len(here.registry), here.backend.unregistered) == (0, [(client, G)])


async def test_later_heartbeat_decides_about_the_groups_of_both(here: Stage) -> None:
    here.backend.registering = asyncio.Event()
    client = FakeChannel()
    first = asyncio.ensure_future(here.handle(beat("orders"), client, 0))
    await settle()
    second = asyncio.ensure_future(here.handle(beat("orders", group="h"), client, 0))
    await settle()
    here.backend.registering.set()
    assert ((await first).code, (await second).code) == (0, 0)
    assert here.registry.groups(Role.CONSUMER) == ["h"]
    assert here.backend.unregistered == [(client, G)]


async def test_gantry_signs_no_heartbeat_that_no_broker_has_accepted(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(signed(heartbeat("c1", {"g": ["orders"], "h": ["orders"]})), client, 0)
    here.backend.registering = asyncio.Event()
    beating = asyncio.ensure_future(here.handle(signed(heartbeat("c1", {"g": ["secret"]})), client, 1))
    await settle()
    await here.handle(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="h"), client, 2)
    kept = client.session.membership.heartbeat
    assert kept is None or not verify(kept, OWN.key)
    here.backend.registering.set()
    with pytest.raises(ServiceUnavailable):
        await beating


async def test_others_are_members_before_brokers_answer(here: Stage) -> None:
    """Gantry decides about them, or nobody does."""
    here.backend.registering = asyncio.Event()
    beats = []
    for number, (judges, signer, command) in enumerate(
        [
            (True, Signer(OWN), beat("orders")),
            (True, Signer(OWN), heartbeat("c1", {"g": ["orders"]})),
            (False, None, heartbeat("c1", {"g": ["orders"]})),
        ],
        1,
    ):
        here.core.signing = SigningPolicy(signer, judges, judges)
        beats.append(asyncio.ensure_future(here.handle(command, FakeChannel(), 0)))
        await settle()
        assert len(here.registry.members(Role.CONSUMER, "g")) == number
    here.backend.registering.set()
    await asyncio.gather(*beats)

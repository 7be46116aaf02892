import asyncio

import pytest

from proxy.core import heartbeat as heartbeats
from proxy.core.client_registry import ConsumerData, Groups, Member, Role
from proxy.core.membership import expire, leave
from remoting.codes import RequestCode
from remoting.errors import BodyError, Overloaded, ServiceUnavailable
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, peer, settle, stage
from tests.proxy.messages import heartbeat, java, request, route

pytestmark = pytest.mark.anyio

G = Groups(consumers=frozenset("g"))


def registrations(on: Stage) -> list[set[str]]:
    return [set(brokers) for _, _, brokers in on.backend.registered]


@pytest.fixture
async def here() -> Stage:
    topics = {"orders": route("orders", "broker-a"), "bills": route("bills", "broker-b", "broker-a")}
    return stage(FakeBackend(warm=topics))


async def test_heartbeat_registers_the_client_at_the_brokers_of_its_topics(here: Stage) -> None:
    client = FakeChannel()
    answer = await here.handle(java(heartbeat("c1", {"g": ["orders", "bills"]}, ["p"]), 479), client, 0)
    assert (answer.code, answer.fields) == (0, {})
    assert here.backend.registered == [
        (client, Groups(frozenset("p"), frozenset("g")), frozenset({"broker-a", "broker-b"}))
    ]
    assert here.registry.consumer_ids("g") == {"c1"}
    member = here.registry.find("c1", Role.CONSUMER, "g")
    assert member is not None
    assert (member.address, member.language, member.version) == ("192.0.2.7:50000", "JAVA", 479)


async def test_a_heartbeat_over_a_bound_ends_only_what_is_new(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    here.backend.refusal = "too many connections"
    with pytest.raises(Overloaded):
        await here.handle(heartbeat("c1", {"g": ["orders"], "h": ["bills"]}, ["p"]), client, 1)
    assert (here.registry.consumer_ids("g"), here.registry.consumer_ids("h")) == ({"c1"}, set())
    assert here.backend.unregistered == [(client, Groups(frozenset("p"), frozenset("h")))]
    here.backend.refusal = None
    await here.handle(heartbeat("c1", {"g": ["orders"], "h": ["bills"]}, ["p"]), client, 2)
    assert here.registry.consumer_ids("h") == {"c1"}


async def test_heartbeat_loads_the_routes_of_new_topics(here: Stage) -> None:
    here.backend.cold = {"new": route("new", "broker-c"), "lost": ServiceUnavailable("no name server")}
    await here.handle(heartbeat("c1", {"g": ["new", "lost", "unknown", "%RETRY%g"]}), FakeChannel(), 0)
    assert registrations(here) == [{"broker-c"}]


async def test_equal_heartbeat_within_five_seconds_is_a_repetition(here: Stage) -> None:
    client = FakeChannel()
    for now in (0, 0.1, 4.9):
        await here.handle(heartbeat("c1", {"g": ["orders"]}), client, now)
    assert registrations(here) == [{"broker-a"}]
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 5.0)
    assert registrations(here) == [{"broker-a"}] * 2
    assert [change.group for change in here.changes] == ["g"]


async def test_different_heartbeat_is_never_a_repetition(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    await here.handle(heartbeat("c1", {"g": ["bills"]}), client, 0.1)
    assert registrations(here) == [{"broker-a"}, {"broker-a", "broker-b"}]
    assert [change.joined for change in here.changes] == [True, True]


async def test_equal_heartbeats_of_two_clients_register_both(here: Stage) -> None:
    for _ in range(2):
        await here.handle(heartbeat("c1", {"g": ["orders"]}), FakeChannel(), 0)
    assert registrations(here) == [{"broker-a"}] * 2


async def test_client_is_registered_at_new_brokers_with_a_route_or_its_next_heartbeat(here: Stage) -> None:
    client, other = FakeChannel(), FakeChannel()
    for one in (client, other):
        await here.handle(heartbeat("c1", {"g": ["orders"]}), one, 0)
    here.backend.registered.clear()
    here.backend.warm["orders"] = route("orders", "broker-a", "broker-new")
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 1)
    assert registrations(here) == []
    await here.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders"), client)
    await settle()
    assert registrations(here) == [{"broker-new"}]
    await here.handle(heartbeat("c1", {"g": ["orders"]}), other, 5)
    assert registrations(here) == [{"broker-new"}, {"broker-a", "broker-new"}]


async def test_client_of_a_dedicated_listener_is_registered_at_that_broker_only(here: Stage) -> None:
    client = FakeChannel(peer(broker="broker-x"))
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    await here.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="bills"), client)
    await settle()
    assert registrations(here) == [{"broker-x"}]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"clientID":""}', b'{"clientID":"c","consumerDataSet":[{}]}'])
async def test_malformed_heartbeat_changes_nothing(here: Stage, body: bytes) -> None:
    with pytest.raises(BodyError) as caught:
        await here.ask(request(RequestCode.HEART_BEAT, body))
    assert caught.value.code == 29
    assert (len(here.registry), here.backend.registered, here.changes) == (0, [], [])


async def test_unregistering_one_group_keeps_the_other(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"], "h": ["orders"]}, ["p"]), client, 0)
    await here.ask(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g"), client)
    assert here.backend.unregistered == [(client, G)]
    assert (here.registry.consumer_ids("g"), here.registry.consumer_ids("h")) == (set(), {"c1"})
    await here.ask(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", producerGroup="p"), client)
    assert here.registry.members(Role.PRODUCER, "p") == []


async def test_unregistering_an_unknown_client_succeeds(here: Stage) -> None:
    answer = await here.ask(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g"))
    assert (answer.code, here.backend.unregistered, here.changes) == (0, [], [])


async def test_client_that_left_can_rejoin_with_the_same_heartbeat(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat(producers=["p"]), client, 0)
    await here.handle(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", producerGroup="p"), client, 1)
    await here.handle(heartbeat(producers=["p"]), client, 2)
    assert [member.client_id for member in here.registry.members(Role.PRODUCER, "p")] == ["c1"]


async def test_equal_heartbeat_after_leaving_registers_at_the_brokers_again(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    await here.handle(request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g"), client, 1)
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 2)
    assert registrations(here) == [{"broker-a"}] * 2


async def test_closed_connection_removes_the_client_from_all_groups(here: Stage) -> None:
    client, other = FakeChannel(), FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}, ["p"]), client, 0)
    await here.handle(heartbeat("c2", {"g": ["orders"]}), other, 0)
    await leave(here.core, client)
    await leave(here.core, client)
    assert here.backend.unregistered == [(client, Groups(frozenset("p"), frozenset("g")))]
    assert here.registry.consumer_ids("g") == {"c2"}
    assert [(change.member.client_id, change.joined) for change in here.changes] == [
        ("c1", True),
        ("c2", True),
        ("c1", False),
    ]


async def test_members_are_notified_only_after_the_brokers_unregistered_the_client(here: Stage) -> None:
    here.backend.unregistering = asyncio.Event()
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    leaving = asyncio.ensure_future(leave(here.core, client))
    await settle()
    assert (here.registry.consumer_ids("g"), [change.joined for change in here.changes]) == (set(), [True])
    here.backend.unregistering.set()
    await leaving
    assert [change.joined for change in here.changes] == [True, False]


async def test_connection_closed_during_its_heartbeat_is_not_registered(here: Stage) -> None:
    here.backend.cold = {"new": route("new", "broker-c")}
    client = FakeChannel()
    beating = asyncio.ensure_future(here.handle(heartbeat("c1", {"g": ["new"]}), client, 0))
    await asyncio.sleep(0)
    client.closed = True
    await leave(here.core, client)
    await beating
    assert (len(here.registry), here.backend.registered) == (0, [])


async def test_heartbeat_of_a_closed_connection_is_ignored(here: Stage) -> None:
    client = FakeChannel(closed=True)
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    assert (len(here.registry), here.backend.registered) == (0, [])


async def test_clients_without_heartbeats_expire(here: Stage) -> None:
    silent, lively, far = FakeChannel(), FakeChannel(), _far()
    for client in (silent, lively):
        await here.handle(heartbeat(f"c{client.session.number}", {"g": ["orders"]}), client, 0)
    here.registry.heartbeat(far, [], {"g": ConsumerData({})}, 0)
    await here.handle(heartbeat("lively", {"g": ["orders"]}), lively, 60)
    await expire(here.core, 90)
    await settle()
    assert len(here.registry.members(Role.CONSUMER, "g")) == 3
    await expire(here.core, 91)
    await settle()
    assert here.registry.consumer_ids("g") == {"lively"}
    assert here.backend.unregistered == [(silent, G)]
    assert {change.member.client_id for change in here.changes if not change.joined} == {
        f"c{silent.session.number}",
        "far",
    }


async def test_other_clients_are_served_while_members_of_many_groups_are_searched(here: Stage) -> None:
    """And a member that joins again meanwhile stays."""
    for number in range(6):
        groups = [f"group-{number}-{group}" for group in range(500)]
        here.registry.heartbeat(Member(number, "far"), groups, {}, 0)
    iterations = [len(here.registry)]
    expiring = asyncio.ensure_future(expire(here.core, 91))
    while not expiring.done():
        await asyncio.sleep(0)
        if len(here.registry) < iterations[-1]:
            iterations.append(len(here.registry))
        if len(here.registry) == 4:
            here.registry.unregister(5, Groups(frozenset(groups)))
            here.registry.heartbeat(Member(5, "near"), groups, {}, 90)
    assert iterations == [6, 4, 2, 1], "one thousand groups in each iteration of the event loop"
    assert [member.client_id for member in here.registry.members(Role.PRODUCER, "group-5-0")] == ["near"]


async def test_unregister_sends_the_clients_own_command_to_brokers(here: Stage) -> None:
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}, ["p"]), client, 0)
    unregister = request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g", AccessKey="k", Signature="s")
    await here.ask(unregister, client)
    await leave(here.core, client)
    sent, rest = here.backend.unregister_commands
    assert sent is not None
    assert (sent.code, sent.fields) == (unregister.code, unregister.fields)
    assert sent.header is not unregister.header, "it is sent more than once"
    assert rest is None, "of what it did not say we speak for it"


async def test_unregister_of_other_groups_or_clients_does_not_reach_brokers(here: Stage) -> None:
    """Brokers know several clients by one connection, and would remove the other one."""
    victim, client = FakeChannel(), FakeChannel()
    await here.handle(heartbeat("c2", {"h": ["orders"]}), victim, 0)
    await here.handle(heartbeat("c1", {"g": ["orders"]}, ["p"]), client, 0)
    for fields in ({"clientID": "c2"}, {"clientID": "c1", "producerGroup": "q"}):
        reply = await here.ask(request(RequestCode.UNREGISTER_CLIENT, consumerGroup="h", **fields), client)
        assert (reply.code, here.backend.unregistered) == (0, [])
    assert here.registry.consumer_ids("h") == {"c2"}
    own = Groups(producers=frozenset("p"))
    for fields in ({"clientID": "c2"}, {"clientID": "c1", "consumerGroup": "h"}):
        await here.handle(heartbeat("c1", {"g": ["orders"]}, ["p"]), client, 0)
        await here.ask(request(RequestCode.UNREGISTER_CLIENT, producerGroup="p", **fields), client)
    assert here.backend.unregistered == [(client, own)] * 2
    assert here.backend.unregister_commands == [None, None]


async def test_left_group_is_removed_from_the_sessions_heartbeat(here: Stage) -> None:
    client = FakeChannel()
    beat = heartbeat("c1", {"g": ["orders"], "h": ["orders"]}, ["p"])
    body = beat.body
    await here.handle(beat, client, 0)
    here.backend.unregistering = asyncio.Event()
    leaving = asyncio.ensure_future(leave(here.core, client, G))
    await settle()
    assert client.session.membership.heartbeat is not None
    sent = heartbeats.parse(client.session.membership.heartbeat.body)
    assert sent.groups == Groups(frozenset("p"), frozenset("h"))
    assert beat.body == body, "what may be on its way stays as it is"
    here.backend.unregistering.set()
    await leaving


async def test_group_left_while_routes_are_loaded_is_not_registered(here: Stage) -> None:
    here.backend.cold = {"new": route("new", "broker-c")}
    client = FakeChannel()
    beating = asyncio.ensure_future(here.handle(heartbeat("c1", {"g": ["new"], "h": ["new"]}), client, 0))
    await asyncio.sleep(0)
    await leave(here.core, client, G)
    await beating
    assert here.backend.registered == [(client, Groups(consumers=frozenset("h")), frozenset({"broker-c"}))]


async def test_expiry_does_not_wait_for_brokers(here: Stage) -> None:
    here.backend.unregistering = asyncio.Event()
    clients = [FakeChannel() for _ in range(3)]
    for client in clients:
        await here.handle(heartbeat("c", {"g": ["orders"]}), client, 0)
    await expire(here.core, 91)
    await settle()
    assert [channel for channel, _ in here.backend.unregistered] == clients
    here.backend.unregistering.set()
    await settle()


def _far() -> Member:
    return Member(("other proxy", "far"), "far")


@pytest.mark.parametrize(
    ("model", "far", "noticed"),
    [("CLUSTERING", True, True), ("CLUSTERING", False, False), ("BROADCASTING", True, False)],
)
async def test_members_are_notified_of_changes_behind_other_proxies(
    here: Stage, model: str, far: bool, noticed: bool
) -> None:
    client, stranger = FakeChannel(), FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    await here.handle(heartbeat("c2", {"h": ["orders"]}), stranger, 0)
    other = _far() if far else Member(FakeChannel(), "near", FakeChannel())
    here.core.changed(here.registry.heartbeat(other, [], {"g": ConsumerData({"messageModel": model})}, 0))
    assert [(notice.code, notice.fields) for notice in client.oneways] == [(40, {"consumerGroup": "g"})] * noticed
    assert stranger.oneways == []


# Channels whose producer groups another channel registers, as for gRPC producers.


async def test_represented_producers_are_not_registered_at_brokers() -> None:
    on = stage(FakeBackend({"orders": route()}))
    channel = FakeChannel(producers_represented=True)
    await on.ask(heartbeat("p1", producers=["orders"]), channel)
    await on.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders"), channel)
    await settle()
    assert on.backend.registered == []
    assert [member.client_id for member in on.registry.members(Role.PRODUCER, "orders")] == ["p1"]
    await on.ask(heartbeat("p1", {"g": ["orders"]}, ["orders"]), channel)
    ((_, groups, _),) = on.backend.registered
    assert groups == Groups(consumers=frozenset({"g"}))


async def test_groups_of_one_client_are_limited_over_all_its_heartbeats(here: Stage) -> None:
    client = FakeChannel()
    for beat in range(2):
        names = [f"p{beat}-{number}" for number in range(500)]
        assert (await here.handle(heartbeat("c1", {}, names), client, beat)).code == 0
    with pytest.raises(BodyError, match="1001 groups of the client of a heartbeat are over the limit of 1000"):
        await here.handle(heartbeat("c1", {}, ["one-more"]), client, 2)
    # The same groups again, and those of another client.
    assert (await here.handle(heartbeat("c1", {}, ["p0-1"]), client, 3)).code == 0
    assert (await here.handle(heartbeat("c2", {}, ["one-more"]), FakeChannel(), 3)).code == 0


async def test_represented_producers_leave_all_topics_without_the_brokers(here: Stage) -> None:
    channel = FakeChannel(producers_represented=True)
    await here.handle(heartbeat("c1", {}, ["p", "q", "r"]), channel, 0)
    await leave(here.core, channel, Groups(frozenset({"p", "q"})))
    member = here.registry.member(channel)
    assert member is not None
    assert member.groups == Groups(frozenset({"r"}))
    assert channel.session.membership.heartbeat is not None
    assert heartbeats.accepted_groups(channel.session.membership.heartbeat.body) == Groups(frozenset({"r"}))
    assert here.backend.unregistered == []


async def test_client_that_leaves_is_not_registered_elsewhere_afterwards(here: Stage) -> None:
    """One read contains a request that names a broker new to the client, and its unregistration."""
    client = FakeChannel()
    await here.handle(heartbeat("c1", {"g": ["orders"]}), client, 0)
    offset = here.core.handle(client, request(RequestCode.GET_MAX_OFFSET, topic="bills", queueId="0", bname="broker-b"))
    left = here.core.handle(client, request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g"))
    assert offset is not None
    assert left is not None
    await left
    await settle()
    assert registrations(here) == [{"broker-a"}]
    assert here.backend.unregistered == [(client, G)]

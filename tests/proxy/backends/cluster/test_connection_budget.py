import pytest

from protocol_negotiation.peer import HostPort
from proxy.backends.cluster.connection_budget import ConnectionBudget
from proxy.core.client_registry import Groups
from remoting.errors import Overloaded
from tests.proxy.backends.cluster.membership_bench import Bench, client
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.fakes import FakeChannel, peer
from tests.proxy.messages import heartbeat

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = (HostPort(f"192.0.2.{number}", 50_000) for number in (1, 2, 3))
SOCKET = HostPort("unix:", 0)


def test_one_address_has_half_of_the_connections() -> None:
    budget = ConnectionBudget(4)
    budget.reserve(0, ["a:1", "b:1"], FIRST)
    budget.reserve(0, ["b:1", "a:1"], SECOND)
    with pytest.raises(Overloaded, match=r"memberships: 2 for one address, .* \(cluster\.membership_connections\)"):
        budget.reserve(0, ["b:1", "c:1"], FIRST)
    budget.reserve(1, ["a:1"], SECOND)
    budget.reserve(2, ["a:1"], SOCKET)
    with pytest.raises(Overloaded, match=r"memberships: 4 in all"):
        budget.reserve(3, ["a:1"], THIRD)
    budget.release(0, ["a:1", "b:1", "c:1"])
    with pytest.raises(Overloaded, match=r"memberships: 2 in all"):
        budget.reserve(3, ["a:1", "b:1", "c:1"], SOCKET)
    budget.reserve(3, ["a:1", "b:1"], FIRST)
    budget.release(9, ["a:1"])
    assert (len(budget), budget.refused) == (4, 3)


def test_a_budget_of_one_has_room_for_an_address() -> None:
    ConnectionBudget(1).reserve(0, ["a:1"], FIRST)


async def test_a_member_over_the_bound_is_refused_and_costs_others_nothing() -> None:
    bench = Bench(broker_a=["a:1", "a:2"])
    bench.budget.limit = 8
    members = [client(f"c{number}") for number in range(2)]
    for member in members:
        await bench.join(member, "g")
    refused = client("c2")
    with pytest.raises(Overloaded):
        await bench.join(refused, "g")
    assert bench.membership.connections == 4
    await bench.join(refused, "h")
    assert bench.membership.connections == 4, "it shares a connection with a member of another group"
    with pytest.raises(Overloaded):
        await bench.join(refused, "h", "g")
    assert [server.received for server in bench.servers[:2]] == [["+c0", "+c2"]] * 2, "it stays in its former group"
    await bench.leave(refused, "h")
    await bench.leave(members[0], "g")
    await bench.join(client("c3"), "g")
    assert [server.received for server in bench.open] == [["+c1"], ["+c1"], ["+c3"], ["+c3"]]


async def test_heartbeats_of_members_reach_their_brokers_while_another_broker_is_over_the_bound() -> None:
    bench = Bench(broker_a=["a:1"], broker_b=["b:1"])
    bench.budget.limit = 2
    c1 = client("c1")
    await bench.join(c1, "g")
    with pytest.raises(Overloaded):
        await bench.join(c1, "g", at=("broker-a", "broker-b"))
    assert {server.address: server.received for server in bench.servers} == {"a:1": ["+c1", "+c1"]}


async def test_metrics_count_connections_of_memberships(cluster: Cluster) -> None:
    await cluster.broker()
    backend = await cluster.backend(membership_connections=2)
    members = [FakeChannel(peer=peer("192.0.2.1:50000")) for _ in range(2)]
    groups = Groups(consumers=frozenset("g"))
    for number, member in enumerate(members):
        member.session.membership.heartbeat = heartbeat(f"c{number}", {"g": ["orders"]})
    await backend.register(members[0], groups, ["broker-a"])
    with pytest.raises(Overloaded):
        await backend.register(members[1], groups, ["broker-a"])
    metrics = {family.name: dict(samples) for family, samples in backend.read_metrics()}
    assert metrics["gantry_membership_connections"] == {(): 1}
    assert metrics["gantry_membership_connections_refused"] == {(): 1}

import asyncio

import pytest

from proxy.backends.cluster import membership
from tests.proxy.backends.cluster.membership_bench import Bench, beat, client
from tests.proxy.fakes import settle
from tests.waiting import until

pytestmark = pytest.mark.anyio


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
async def test_an_address_that_a_broker_has_left_counts_no_longer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_MAX_RETRIES", 3)
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    for number in range(2, 6):
        (former,) = bench.open
        bench.brokers["broker-b"] = [f"b:{number}"]
        bench.down = {former.address}
        former.lose()
        bench.membership.register_at_new_addresses("broker-b", [f"b:{number}"])
        await settle()
        await until(lambda: len(bench.open) == 1)
        assert [server.address for server in bench.open] == [f"b:{number}"]
        assert len(bench.budget) == 1
    await bench.leave(c1, "g")
    assert (len(bench.budget), bench.open) == (0, [])


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
    c1.session.membership.heartbeat = beat(c1, "c1 without g")
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

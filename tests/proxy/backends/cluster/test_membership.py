import asyncio

import pytest

from proxy.core.client_registry import INNER_PRODUCER, Groups
from remoting.codes import RequestCode
from remoting.errors import ServiceUnavailable
from tests.proxy.backends.cluster.membership_bench import BEAT, BYE, Bench, beat, client
from tests.proxy.fakes import settle
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio


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
    c1.session.membership.heartbeat = beat(c1, "newest")
    bench.answer()
    await asyncio.gather(*joining)
    assert bench.servers[0].received == ["+new", "+newest"], "the second heartbeat had come before the first went out"


async def test_oneway_request_is_sent_to_brokers_as_a_request_with_response(bench: Bench) -> None:
    """An unanswered request would close a connection that many clients share."""
    c1 = client("c1")
    c1.session.membership.heartbeat = request(BEAT, b"", True, who="c1")
    await bench.membership.register(c1, Groups(consumers=frozenset("g")), ["broker-b"])
    await bench.leave(c1, "g", unregister_command=request(BYE, b"", True, clientID="c1", consumerGroup="g"))
    (server,) = bench.servers
    assert server.received == ["+c1", "-g"]
    assert not any(command.is_oneway for command in server.requests)


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
    bench.servers[0].push(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="h"))
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
    bench.open[-1].push(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g"))
    assert [channel for channel, _ in bench.pushed] == [c1]

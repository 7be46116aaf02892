import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.response_status import Refused
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, FilterExpression
from remoting.tasks import spawn
from tests.grpc_gateway.kit import PEER, FakeConnection, FakeContext, make_client
from tests.proxy.fakes import Clock, settle

pytestmark = pytest.mark.anyio


def clients(clock: Clock | None = None, most: int = 100) -> ClientTable:
    return ClientTable(make_client, Clock() if clock is None else clock, most)


def context(client_id: str = "c1", connection: FakeConnection | None = None, **metadata: str) -> FakeContext:
    return FakeContext(None, connection, x_mq_client_id=client_id, **metadata)


async def test_a_client_is_the_same_over_all_of_its_connections() -> None:
    known = clients()
    first = known.rpc(context(connection=FakeConnection()), "SendMessage").client
    assert known.rpc(context(connection=FakeConnection()), "SendMessage").client is first
    assert known.rpc(context(), "SendMessage").client is first
    assert known.rpc(context("c2"), "SendMessage").client is not first
    assert len(known) == 2


async def test_a_connection_has_room_for_so_many_clients() -> None:
    known = ClientTable(make_client, Clock(), per_connection=2)
    connection = FakeConnection()
    first = known.rpc(context("c1", connection), "Heartbeat").client
    known.rpc(context("c2", connection), "Heartbeat")
    with pytest.raises(Refused) as refused:
        known.rpc(context("c3", connection), "Heartbeat")
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    assert known.rpc(context("c1", connection), "Heartbeat").client is first
    known.remove(first)
    known.rpc(context("c3", connection), "Heartbeat")


async def test_nobody_from_another_host_passes_for_it() -> None:
    known = clients()
    first = known.rpc(context(connection=FakeConnection()), "SendMessage").client
    elsewhere = FakeConnection(Peer(HostPort("203.0.113.9", 50000), PEER.local))
    assert known.rpc(context(connection=elsewhere), "SendMessage").client is not first


@pytest.mark.parametrize("client_id", ["", "  "])
async def test_who_does_not_say_who_it_is_is_refused(client_id: str) -> None:
    for unnamed in (FakeContext(x_mq_client_id=client_id), FakeContext()):
        with pytest.raises(Refused) as refused:
            clients().rpc(unnamed, "SendMessage")
        assert refused.value.code == Code.CLIENT_ID_REQUIRED


async def test_a_probe_needs_no_name_and_leaves_no_trace() -> None:
    known = clients()
    assert known.rpc(FakeContext(), "Heartbeat").client.client_id == ""
    assert len(known) == 0


async def test_what_the_metadata_says_is_kept() -> None:
    known, clock = clients(clock := Clock()), clock
    client = known.rpc(context(x_mq_language="GO", x_mq_client_version="5.1.4"), "Heartbeat").client
    assert (client.language, client.version, client.last_call_at) == ("GO", "5.1.4", clock.now)
    revision = client.revision
    clock.now += 5
    known.rpc(context(x_mq_language="GO", x_mq_client_version="5.1.4"), "Heartbeat")
    assert (client.revision, client.last_call_at) == (revision, clock.now)
    known.rpc(context(x_mq_language="RUST", x_mq_client_version="5.1.4"), "Heartbeat")
    assert client.revision > revision


def alone(client: Client) -> float | None:
    return client.disconnected_at


async def test_a_client_is_alone_when_its_last_connection_has_closed() -> None:
    known, clock = clients(clock := Clock()), clock
    one, other = FakeConnection(), FakeConnection()
    client = known.rpc(context(connection=one), "Heartbeat").client
    known.rpc(context(connection=other), "Heartbeat")
    known.disconnected(one)
    assert alone(client) is None
    known.disconnected(other)
    assert alone(client) == clock.now
    known.disconnected(other)
    again = FakeConnection()
    assert known.rpc(context(connection=again), "Heartbeat").client is client
    assert client.disconnected_at is None


async def test_a_connection_that_has_closed_already_is_none() -> None:
    known, connection = clients(), FakeConnection()
    connection.closed = True
    client = known.rpc(context(connection=connection), "Heartbeat").client
    assert not client.connections
    assert not known._by_connection


async def test_who_has_left_is_forgotten_and_may_come_back() -> None:
    known, connection = clients(), FakeConnection()
    gone: list[Client] = []
    known.departure_listeners.append(gone.append)
    client = known.rpc(context(connection=connection), "Heartbeat").client
    known.remove(client)
    known.remove(client)
    assert gone == [client]
    assert client.closed
    assert len(known) == 0
    again = known.rpc(context(connection=connection), "Heartbeat").client
    assert again is not client
    assert not again.closed
    known.disconnected(connection)
    assert again.disconnected_at is not None


async def test_made_up_clients_do_not_fill_the_memory() -> None:
    known, clock = clients(clock := Clock(), most=3), clock
    for number in range(3):
        known.rpc(context(f"made-up-{number}"), "QueryRoute")
    with pytest.raises(Refused) as refused:
        known.rpc(context("c1"), "QueryRoute")
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    clock.now += 11
    known.rpc(context("c1"), "QueryRoute")
    assert [client.client_id for client in known] == ["c1"]


# A client by itself.


async def test_what_a_client_does_stands_in_for_settings() -> None:
    client = make_client("c1", PEER)
    revision = client.revision
    client.record_publication("orders")
    client.record_publication("orders")
    everything = FilterExpression(expression="*")
    client.record_subscription("orders", everything)
    client.record_subscription("orders", everything)
    assert client.revision == revision + 2
    assert client.client_type == ClientType.CLIENT_TYPE_UNSPECIFIED
    for number in range(3_000):
        client.record_publication(f"t{number}")
        client.record_subscription(f"t{number}", everything)
    assert len(client.topics) <= 1_000
    assert len(client.subscriptions) <= 1_000


def held(client: Client) -> bool:
    return client.paused


async def test_a_held_client_waits() -> None:
    client = make_client("c1", PEER)
    client.pause()
    client.pause()
    waiting = [spawn(client.wait_until_resumed()) for _ in range(2)]
    client.resume()
    await settle()
    assert held(client)
    assert not any(task.done() for task in waiting)
    client.resume()
    await settle()
    assert not held(client)
    assert all(task.done() for task in waiting)
    await client.wait_until_resumed()


async def test_a_name_is_bounded() -> None:
    known = clients()
    known.rpc(context("x" * 512), "SendMessage")
    for name in ("SendMessage", "Heartbeat"):
        with pytest.raises(Refused) as refused:
            known.rpc(context("x" * 513), name)
        assert refused.value.code == Code.CLIENT_ID_REQUIRED
    assert len(known) == 1


async def test_of_a_request_nothing_else_is_kept() -> None:
    client, expression = make_client("c1", PEER), FilterExpression(expression="a")
    client.record_subscription("orders", expression)
    assert client.subscriptions == {"orders": expression}
    assert client.subscriptions["orders"] is not expression

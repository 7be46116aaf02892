import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.response_status import Refused
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, FilterExpression
from remoting.tasks import spawn
from tests.grpc_gateway.fakes import PEER, FakeConnection, FakeContext, make_client
from tests.proxy.fakes import Clock, settle

pytestmark = pytest.mark.anyio


def make_table(clock: Clock | None = None, max_clients: int = 100) -> ClientTable:
    return ClientTable(make_client, Clock() if clock is None else clock, max_clients)


def context(client_id: str = "c1", connection: FakeConnection | None = None, **metadata: str) -> FakeContext:
    return FakeContext(None, connection, x_mq_client_id=client_id, **metadata)


async def test_client_is_the_same_over_all_of_its_connections() -> None:
    table = make_table()
    first = table.rpc(context(connection=FakeConnection()), "SendMessage").client
    assert table.rpc(context(connection=FakeConnection()), "SendMessage").client is first
    assert table.rpc(context(), "SendMessage").client is first
    assert table.rpc(context("c2"), "SendMessage").client is not first
    assert len(table) == 2


async def test_clients_per_connection_are_limited() -> None:
    table = ClientTable(make_client, Clock(), per_connection=2)
    connection = FakeConnection()
    first = table.rpc(context("c1", connection), "Heartbeat").client
    table.rpc(context("c2", connection), "Heartbeat")
    with pytest.raises(Refused) as refused:
        table.rpc(context("c3", connection), "Heartbeat")
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    assert table.rpc(context("c1", connection), "Heartbeat").client is first
    table.remove(first)
    table.rpc(context("c3", connection), "Heartbeat")


async def test_same_id_on_another_host_is_another_client() -> None:
    table = make_table()
    first = table.rpc(context(connection=FakeConnection()), "SendMessage").client
    other_host = FakeConnection(Peer(HostPort("203.0.113.9", 50000), PEER.local))
    assert table.rpc(context(connection=other_host), "SendMessage").client is not first


@pytest.mark.parametrize("client_id", ["", "  "])
async def test_rpc_without_client_id_is_rejected(client_id: str) -> None:
    for context_without_id in (FakeContext(x_mq_client_id=client_id), FakeContext()):
        with pytest.raises(Refused, match=r"^client id cannot be empty$") as refused:
            make_table().rpc(context_without_id, "SendMessage")
        assert refused.value.code == Code.CLIENT_ID_REQUIRED


async def test_heartbeat_without_client_id_adds_no_client() -> None:
    table = make_table()
    assert table.rpc(FakeContext(), "Heartbeat").client.client_id == ""
    assert len(table) == 0


async def test_metadata_updates_the_client() -> None:
    table, clock = make_table(clock := Clock()), clock
    client = table.rpc(context(x_mq_language="GO", x_mq_client_version="5.1.4"), "Heartbeat").client
    assert (client.language, client.version, client.last_call_at) == ("GO", "5.1.4", clock.now)
    revision = client.revision
    clock.now += 5
    table.rpc(context(x_mq_language="GO", x_mq_client_version="5.1.4"), "Heartbeat")
    assert (client.revision, client.last_call_at) == (revision, clock.now)
    table.rpc(context(x_mq_language="RUST", x_mq_client_version="5.1.4"), "Heartbeat")
    assert client.revision > revision


def disconnected_at(client: Client) -> float | None:
    return client.disconnected_at


async def test_client_is_disconnected_when_its_last_connection_closes() -> None:
    table, clock = make_table(clock := Clock()), clock
    first_connection, second_connection = FakeConnection(), FakeConnection()
    client = table.rpc(context(connection=first_connection), "Heartbeat").client
    table.rpc(context(connection=second_connection), "Heartbeat")
    table.disconnected(first_connection)
    assert disconnected_at(client) is None
    table.disconnected(second_connection)
    assert disconnected_at(client) == clock.now
    table.disconnected(second_connection)
    again = FakeConnection()
    assert table.rpc(context(connection=again), "Heartbeat").client is client
    assert client.disconnected_at is None


async def test_closed_connection_is_not_recorded() -> None:
    table, connection = make_table(), FakeConnection()
    connection.closed = True
    client = table.rpc(context(connection=connection), "Heartbeat").client
    assert not client.connections
    assert not table._by_connection


async def test_removed_client_may_return_as_a_new_one() -> None:
    table, connection = make_table(), FakeConnection()
    departed: list[Client] = []
    table.departure_listeners.append(departed.append)
    client = table.rpc(context(connection=connection), "Heartbeat").client
    table.remove(client)
    table.remove(client)
    assert departed == [client]
    assert client.closed
    assert len(table) == 0
    again = table.rpc(context(connection=connection), "Heartbeat").client
    assert again is not client
    assert not again.closed
    table.disconnected(connection)
    assert again.disconnected_at is not None


async def test_full_table_evicts_unregistered_clients() -> None:
    table, clock = make_table(clock := Clock(), max_clients=3), clock
    for number in range(3):
        table.rpc(context(f"made-up-{number}"), "QueryRoute")
    with pytest.raises(Refused) as refused:
        table.rpc(context("c1"), "QueryRoute")
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    clock.now += 11
    table.rpc(context("c1"), "QueryRoute")
    assert [client.client_id for client in table] == ["c1"]


# Clients.


async def test_client_records_topics_of_its_calls_up_to_a_limit() -> None:
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


def is_paused(client: Client) -> bool:
    return client.paused


async def test_paused_client_waits_until_it_is_resumed() -> None:
    client = make_client("c1", PEER)
    client.pause()
    client.pause()
    waiting = [spawn(client.wait_until_resumed()) for _ in range(2)]
    client.resume()
    await settle()
    assert is_paused(client)
    assert not any(task.done() for task in waiting)
    client.resume()
    await settle()
    assert not is_paused(client)
    assert all(task.done() for task in waiting)
    await client.wait_until_resumed()


async def test_length_of_the_client_id_is_limited() -> None:
    table = make_table()
    table.rpc(context("x" * 512), "SendMessage")
    for name in ("SendMessage", "Heartbeat"):
        with pytest.raises(Refused) as refused:
            table.rpc(context("x" * 513), name)
        assert refused.value.code == Code.CLIENT_ID_REQUIRED
    assert len(table) == 1


async def test_recorded_subscription_is_a_copy() -> None:
    client, expression = make_client("c1", PEER), FilterExpression(expression="a")
    client.record_subscription("orders", expression)
    assert client.subscriptions == {"orders": expression}
    assert client.subscriptions["orders"] is not expression


async def test_what_is_recorded_of_calls_is_bounded_and_counted() -> None:
    connection = FakeConnection()
    table = make_table()
    client = table.rpc(context(connection=connection), "ReceiveMessage").client
    before = table.memory(connection)
    client.record_subscription("t1", FilterExpression(expression="x" * 100_000))
    client.record_publication("t2")
    assert table.memory(connection) - before > 10 * 100_000
    client.record_subscription("t2", FilterExpression(expression="x" * 100_000))
    client.record_subscription("t3", FilterExpression(expression="x" * 100_000))
    assert set(client.subscriptions) == {"t3"}, "the former ones are forgotten"
    assert 100_000 < client.recorded_bytes < 101_000

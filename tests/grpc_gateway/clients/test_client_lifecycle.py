import asyncio
from typing import Any

import orjson
import pytest

from grpc_gateway.clients import client_lifecycle
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_settings import LITE_CONSUMERS
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, FilterExpression, FilterType, Resource
from protos.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    ReceiveMessageRequest,
    TelemetryCommand,
)
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import Overloaded
from tests.grpc_gateway.client_harness import LITE_GROUP, ClientHarness
from tests.grpc_gateway.fakes import PEER, FakeConnection, FakeContext, FakeCore
from tests.grpc_gateway.messages import consumer_settings, producer_settings, receipt_handle
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

HEART_BEAT, UNREGISTER, ROUTE = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


def push_heartbeat(group: str = "g", kind: ClientType = ClientType.PUSH_CONSUMER) -> HeartbeatRequest:
    return HeartbeatRequest(group=Resource(name=group), client_type=kind)


PRODUCER_HEARTBEAT = HeartbeatRequest(client_type=ClientType.PRODUCER)


def heartbeat_bodies(harness: ClientHarness, client_id: str = "c1") -> list[Any]:
    """Return the HeartbeatData of each heartbeat of a client."""
    sent = [orjson.loads(body) for _, code, _, body in harness.core.handled if code == HEART_BEAT]
    return [body for body in sent if body["clientID"] == client_id]


def consumer_data(harness: ClientHarness) -> Any:
    """Return the only ConsumerData of the last heartbeat."""
    (data,) = heartbeat_bodies(harness)[-1]["consumerDataSet"]
    return data


async def terminate(harness: ClientHarness, client_id: str = "c1", **request: Any) -> int:
    rpc = harness.clients.rpc(harness.context(client_id), "NotifyClientTermination")
    return (await harness.client_lifecycle.terminate(rpc, NotifyClientTerminationRequest(**request))).status.code


# The Go client sends an empty Heartbeat without a client id as a health check after a stream has failed.


async def test_empty_heartbeat_without_client_id_is_answered() -> None:
    harness = ClientHarness()
    rpc = harness.clients.rpc(FakeContext(), "Heartbeat")
    assert (await harness.client_lifecycle.heartbeat(rpc, HeartbeatRequest())).status.code == Code.OK
    assert harness.command_codes == []


async def test_heartbeat_with_a_group_but_without_client_id_is_rejected() -> None:
    harness = ClientHarness()
    rpc = harness.clients.rpc(FakeContext(), "Heartbeat")
    with pytest.raises(Refused) as refused:
        await harness.client_lifecycle.heartbeat(rpc, push_heartbeat())
    assert refused.value.code == Code.CLIENT_ID_REQUIRED


# Clients with settings.


async def test_consumer_is_registered_with_its_settings() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings(topics=("b", "a"), expression=" x || y "))
    await harness.heartbeat(push_heartbeat())
    (body,) = heartbeat_bodies(harness)
    assert body["producerDataSet"] == []
    data = consumer_data(harness)
    assert data["groupName"] == "g"
    assert data["consumeType"] == "CONSUME_PASSIVELY"
    assert data["messageModel"] == "CLUSTERING"
    assert data["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert [item["topic"] for item in data["subscriptionDataSet"]] == ["a", "b"]
    first = data["subscriptionDataSet"][0]
    assert (first["subString"], first["expressionType"]) == (" x || y ", "TAG")
    # Brokers filter by Java's hash codes.
    assert (first["tagsSet"], first["codeSet"]) == (["x", "y"], [120, 121])


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (FilterType.TAG, "*", ("*", [], "TAG")),
        (FilterType.TAG, "", ("*", [], "TAG")),
        (FilterType.FILTER_TYPE_UNSPECIFIED, "a||", ("a||", ["a"], "TAG")),
        (FilterType.SQL, "a > 1 || b", ("a > 1 || b", [], "SQL92")),
    ],
)
async def test_filters_are_converted_to_subscription_data(
    kind: FilterType, text: str, expected: tuple[str, list[str], str]
) -> None:
    settings = consumer_settings()
    settings.subscription.subscriptions[0].expression.CopyFrom(FilterExpression(type=kind, expression=text))
    harness = ClientHarness()
    await harness.open_session(settings)
    (subscription,) = consumer_data(harness)["subscriptionDataSet"]
    assert (subscription["subString"], subscription["tagsSet"], subscription["expressionType"]) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ClientType.PUSH_CONSUMER, "CONSUME_PASSIVELY"),
        (ClientType.LITE_PUSH_CONSUMER, "CONSUME_PASSIVELY"),
        (ClientType.SIMPLE_CONSUMER, "CONSUME_ACTIVELY"),
        (ClientType.PULL_CONSUMER, "CONSUME_ACTIVELY"),
        (ClientType.LITE_SIMPLE_CONSUMER, "CONSUME_ACTIVELY"),
    ],
)
async def test_consumer_type_determines_the_consume_type(kind: ClientType, expected: str) -> None:
    harness = ClientHarness(FakeCore(groups={"g": LITE_GROUP} if kind in LITE_CONSUMERS else {}))
    await harness.open_session(consumer_settings(kind=kind))
    assert (await harness.heartbeat(push_heartbeat(kind=kind))).status.code == Code.OK
    assert consumer_data(harness)["consumeType"] == expected


async def test_heartbeat_without_fields_uses_the_settings() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    assert (await harness.heartbeat()).status.code == Code.OK


async def test_unchanged_heartbeats_are_not_sent_to_the_core() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    for _ in range(100):
        await harness.heartbeat(push_heartbeat())
    assert harness.command_codes == [HEART_BEAT]
    # Java sends its settings every five minutes, Rust every thirty seconds.
    await harness.open_session(consumer_settings())
    await harness.heartbeat(push_heartbeat())
    assert len(set(map(orjson.dumps, heartbeat_bodies(harness)))) == 1


async def test_unchanged_registration_is_repeated_after_the_interval() -> None:
    harness = ClientHarness(client_expiry=30.0)
    await harness.open_session(consumer_settings())
    data = harness.client().registration
    assert data is not None
    data.registered_at -= 11
    await harness.heartbeat(push_heartbeat())
    assert harness.command_codes == [HEART_BEAT, HEART_BEAT]
    assert len(set(map(orjson.dumps, heartbeat_bodies(harness)))) == 1


async def test_changed_subscriptions_are_registered_with_a_newer_version() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings(topics=("a",)))
    await asyncio.sleep(0.002)
    await harness.open_session(consumer_settings(topics=("a", "b")))
    first, second = (body["consumerDataSet"][0]["subscriptionDataSet"] for body in heartbeat_bodies(harness))
    assert [item["topic"] for item in second] == ["a", "b"]
    # Brokers keep the subscription with the larger version.
    assert second[0]["subVersion"] > first[0]["subVersion"]


# Clients without settings: another replica got them, or the stream has ended (C#, Python, Go, C++).


async def test_consumer_without_settings_is_registered_with_its_receives() -> None:
    harness = ClientHarness()
    client = harness.client()
    assert (await harness.heartbeat(push_heartbeat())).status.code == Code.OK
    # No subscription yet: an empty one would remove the topics of the other members from the group.
    assert harness.command_codes == []
    receive = ReceiveMessageRequest(filter_expression=FilterExpression(type=FilterType.TAG, expression="x"))
    client.record_subscription("orders", receive.filter_expression)
    await harness.heartbeat(push_heartbeat())
    assert [(item["topic"], item["subString"]) for item in consumer_data(harness)["subscriptionDataSet"]] == [
        ("orders", "x")
    ]
    await harness.heartbeat(push_heartbeat())
    assert harness.command_codes == [HEART_BEAT]


async def test_producer_without_settings_is_registered_with_its_sends() -> None:
    harness = ClientHarness()
    client = harness.client()
    assert (await harness.heartbeat(PRODUCER_HEARTBEAT)).status.code == Code.OK
    assert harness.command_codes == []
    client.record_publication("orders")
    await harness.heartbeat(PRODUCER_HEARTBEAT)
    await settle()
    assert [item["groupName"] for item in heartbeat_bodies(harness)[0]["producerDataSet"]] == ["orders"]


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, 99])
async def test_unknown_client_type_is_rejected(kind: ClientType) -> None:
    assert await ClientHarness().rejection_code(push_heartbeat(kind=kind)) == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize("group", ["", "no such group", "CID_RMQ_SYS_x"])
async def test_consumer_without_a_valid_group_is_rejected(group: str) -> None:
    assert await ClientHarness().rejection_code(push_heartbeat(group)) == Code.ILLEGAL_CONSUMER_GROUP


async def test_consumer_that_changes_its_group_leaves_the_previous_one() -> None:
    harness = ClientHarness()
    client = harness.client()
    client.record_subscription("orders", FilterExpression(expression="*"))
    await harness.heartbeat(push_heartbeat("g"))
    await harness.heartbeat(push_heartbeat("h"))
    assert harness.command_codes == [HEART_BEAT, UNREGISTER, HEART_BEAT]
    assert harness.core.fields[1] == {"consumerGroup": "g", "clientID": "c1"}


# Slow and failing brokers.


async def test_heartbeat_is_answered_within_the_timeout_if_brokers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_RESPONSE_TIMEOUT", 0.01)
    harness = ClientHarness(FakeCore(pending=[]))
    harness.client().record_subscription("orders", FilterExpression(expression="*"))
    assert (await harness.heartbeat(push_heartbeat())).status.code == Code.OK
    assert harness.core.pending is not None
    harness.core.pending[0].set_exception(Overloaded("late"))
    await settle()


async def test_failed_registration_is_retried_by_the_next_heartbeat() -> None:
    def fail(_: RemotingCommand) -> Exception:
        return Overloaded("not now")

    harness = ClientHarness(FakeCore(answer=fail))
    harness.client().record_subscription("orders", FilterExpression(expression="*"))
    with pytest.raises(Overloaded):
        await harness.heartbeat(push_heartbeat())
    harness.core.answer = lambda _: commands.success()
    assert (await harness.heartbeat(push_heartbeat())).status.code == Code.OK
    assert harness.command_codes == [HEART_BEAT, HEART_BEAT]


async def test_members_of_a_group_on_one_connection_are_limited() -> None:
    harness = ClientHarness(members_per_connection=2)
    connection, other = FakeConnection(), FakeConnection()

    async def join(client_id: str, group: str = "g", over: FakeConnection = connection) -> int:
        rpc = harness.clients.rpc(harness.context(client_id, connection=over), "Heartbeat")
        rpc.client.record_subscription("orders", FilterExpression(expression="*"))
        return (await harness.client_lifecycle.heartbeat(rpc, push_heartbeat(group))).status.code

    assert [await join("c1"), await join("c2")] == [Code.OK] * 2
    with pytest.raises(Refused, match=r"2 members of the group g .* \(grpc\.members_per_connection\)") as refused:
        await join("c3")
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    assert await join("c1") == Code.OK
    assert [await join("c3", "h"), await join("c4", over=other)] == [Code.OK] * 2
    harness.clients.remove(harness.clients.rpc(harness.context("c1", connection=connection), "Heartbeat").client)
    assert await join("c5") == Code.OK


# Termination.


async def test_terminated_consumer_leaves_its_group() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    client = harness.client()
    assert await terminate(harness, group=Resource(name="g")) == Code.OK
    assert harness.command_codes == [HEART_BEAT, UNREGISTER]
    assert harness.core.fields[-1] == {"consumerGroup": "g", "clientID": "c1"}
    assert is_closed(client)
    assert await session.read() is None
    assert len(harness.clients) == 0


async def test_terminated_producer_leaves_all_of_its_topics() -> None:
    harness = ClientHarness()
    await harness.open_session(producer_settings("a", "b"))
    await settle()
    # The Go client sends an empty group.
    assert await terminate(harness, group=Resource(name="")) == Code.OK
    unregistered = [
        fields for client, code, fields, _ in harness.core.handled if code == UNREGISTER and client.client_id == "c1"
    ]
    assert unregistered == [{"producerGroup": "a", "clientID": "c1"}, {"producerGroup": "b", "clientID": "c1"}]
    assert len(harness.client_lifecycle.producers) == 0


async def test_repeated_termination_is_ok() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    for _ in range(3):
        assert await terminate(harness) == Code.OK
    assert harness.command_codes == [HEART_BEAT, UNREGISTER]


async def test_termination_is_answered_within_the_timeout_if_brokers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_RESPONSE_TIMEOUT", 0.01)
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    harness.core.pending = []
    assert await terminate(harness) == Code.OK
    harness.core.pending[0].set_exception(Overloaded("late"))
    await harness.client_lifecycle.close()


# Departure without termination.


async def connected(harness: ClientHarness) -> tuple[Client, FakeConnection]:
    """Return a consumer and its only connection."""
    connection = FakeConnection()
    client = harness.clients.rpc(harness.context(connection=connection), "Heartbeat").client
    client.record_subscription("orders", FilterExpression(expression="*"))
    await harness.client_lifecycle.heartbeat(Rpc(client, harness.context(), PEER), push_heartbeat())
    return client, connection


def is_closed(client: Client) -> bool:
    return client.closed


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_client_without_calls_expires() -> None:
    harness, began = ClientHarness(), now()
    client, _ = await connected(harness)
    harness.client_lifecycle.sweep(began + 89)
    assert not is_closed(client)
    harness.client_lifecycle.sweep(now() + 91)
    await settle()
    assert is_closed(client)
    assert harness.command_codes == [HEART_BEAT, UNREGISTER]


async def test_disconnected_client_may_reconnect_within_the_timeout() -> None:
    harness = ClientHarness()
    began = now()
    client, connection = await connected(harness)
    harness.clients.disconnected(connection)
    harness.client_lifecycle.sweep(began + 9)
    assert not is_closed(client)
    harness.clients.rpc(harness.context(connection=FakeConnection()), "ReceiveMessage")
    harness.client_lifecycle.sweep(began + 60)
    assert not is_closed(client)
    assert harness.command_codes == [HEART_BEAT]


async def test_disconnected_client_is_removed_after_the_timeout() -> None:
    harness = ClientHarness()
    client, connection = await connected(harness)
    harness.clients.disconnected(connection)
    harness.client_lifecycle.sweep(now() + 11)
    await settle()
    assert is_closed(client)
    assert harness.command_codes == [HEART_BEAT, UNREGISTER]


class LossTimer:
    """Collects the delayed removals of lost clients."""

    def __init__(self, harness: ClientHarness) -> None:
        self.delays: list[float] = []
        self._calls: list[tuple[Any, tuple[Any, ...]]] = []
        harness.client_lifecycle._call_later = self._call_later  # type: ignore[assignment]

    def _call_later(self, delay: float, call: Any, *arguments: Any) -> None:
        self.delays.append(delay)
        self._calls.append((call, arguments))

    def fire(self) -> None:
        """Run all delayed calls."""
        for call, arguments in self._calls:
            call(*arguments)


async def test_lost_client_is_removed_within_a_second_and_its_deliveries_are_returned() -> None:
    harness = ClientHarness()
    timer = LossTimer(harness)
    client, connection = await connected(harness)
    harness.renewal.add(client, "g", "orders", receipt_handle(5, renewal_id=harness.renewal.new_renewal_id()), 1)
    harness.client_lifecycle.connection_lost(harness.clients.disconnected(connection), "reset")
    assert not is_closed(client)
    assert timer.delays == [client_lifecycle._LOST_TIMEOUT]
    assert client_lifecycle._LOST_TIMEOUT < 1
    timer.fire()
    await settle()
    assert is_closed(client)
    assert harness.command_codes[0] == HEART_BEAT
    assert set(harness.command_codes[1:]) == {UNREGISTER, RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
    assert harness.client_lifecycle.lost == {"peer": 0, "reset": 1, "unresponsive": 0}


async def test_lost_client_that_reconnects_stays_registered() -> None:
    harness = ClientHarness()
    timer = LossTimer(harness)
    client, connection = await connected(harness)
    harness.client_lifecycle.connection_lost(harness.clients.disconnected(connection), "peer")
    harness.clients.rpc(harness.context(connection=FakeConnection()), "ReceiveMessage")
    timer.fire()
    assert not is_closed(client)
    assert harness.command_codes == [HEART_BEAT]
    assert harness.client_lifecycle.lost["peer"] == 0


async def test_client_with_another_connection_is_not_lost() -> None:
    harness = ClientHarness()
    timer = LossTimer(harness)
    client, connection = await connected(harness)
    harness.clients.rpc(harness.context(connection=FakeConnection()), "ReceiveMessage")
    harness.client_lifecycle.connection_lost(harness.clients.disconnected(connection), "peer")
    assert timer.delays == []
    assert not is_closed(client)


async def test_lost_producer_gets_no_transaction_checks() -> None:
    harness = ClientHarness()
    timer = LossTimer(harness)
    connection = FakeConnection()
    client = harness.clients.rpc(harness.context(connection=connection), "Heartbeat").client
    client.record_publication("orders")
    await harness.client_lifecycle.heartbeat(Rpc(client, harness.context(), PEER), PRODUCER_HEARTBEAT)
    await settle()
    assert len(harness.client_lifecycle.producers) == 1
    harness.client_lifecycle.connection_lost(harness.clients.disconnected(connection), "reset")
    timer.fire()
    await settle()
    assert len(harness.client_lifecycle.producers) == 0
    assert harness.core.fields[-1]["producerGroup"] == "orders"


async def test_expired_client_may_return() -> None:
    harness = ClientHarness()
    await connected(harness)
    harness.client_lifecycle.sweep(now() + 91)
    await settle()
    again, _ = await connected(harness)
    assert not again.closed
    assert harness.command_codes == [HEART_BEAT, UNREGISTER, HEART_BEAT]


async def test_close_unregisters_all_clients() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings(), "c1")
    await harness.open_session(consumer_settings(), "c2")
    await harness.client_lifecycle.close()
    assert harness.command_codes == [HEART_BEAT, HEART_BEAT, UNREGISTER, UNREGISTER]
    assert len(harness.clients) == 0


async def test_settings_that_change_faster_than_brokers_answer_are_registered_once_with_the_last_value() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings("g", ("first",)))
    harness.core.handled.clear()
    harness.core.pending = []
    for number in range(100):
        session.send(TelemetryCommand(settings=consumer_settings("g", (f"t{number}",))))
        await session.read()
    await settle()
    [in_flight], harness.core.pending = harness.core.pending, None
    in_flight.set_result(commands.success())
    await settle()
    # The settings in flight, then the newest ones after the reply; none in between.
    topics = [
        data["subscriptionDataSet"][0]["topic"]
        for body in heartbeat_bodies(harness)
        for data in body["consumerDataSet"]
    ]
    assert len(topics) == 2
    assert topics[-1] == "t99"

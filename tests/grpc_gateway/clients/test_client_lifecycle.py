import asyncio
from typing import Any

import orjson
import pytest

from grpc_gateway.clients import client_lifecycle
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_header import language, version
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
from remoting.codes import OWN_VERSION, LanguageCode, RequestCode, version_ordinal
from remoting.command import RemotingCommand
from remoting.errors import Overloaded
from tests.grpc_gateway.kit import PEER, FakeConnection, FakeContext, FakeCore, consumer_settings, producer_settings
from tests.grpc_gateway.talk import Stage
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

HEART_BEAT, UNREGISTER, ROUTE = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


def push(group: str = "g", kind: ClientType = ClientType.PUSH_CONSUMER) -> HeartbeatRequest:
    return HeartbeatRequest(group=Resource(name=group), client_type=kind)


PRODUCING = HeartbeatRequest(client_type=ClientType.PRODUCER)


def bodies(stage: Stage, client_id: str = "c1") -> list[Any]:
    """HeartbeatData of each heartbeat of this client."""
    found = [orjson.loads(body) for _, code, _, body in stage.core.handled if code == HEART_BEAT]
    return [body for body in found if body["clientID"] == client_id]


def consumer(stage: Stage) -> Any:
    """The one ConsumerData of the last heartbeat."""
    (part,) = bodies(stage)[-1]["consumerDataSet"]
    return part


async def terminate(stage: Stage, client_id: str = "c1", **request: Any) -> int:
    call = stage.clients.rpc(stage.context(client_id), "NotifyClientTermination")
    return (await stage.client_lifecycle.terminate(call, NotifyClientTerminationRequest(**request))).status.code


async def refusal(stage: Stage, request: HeartbeatRequest) -> int:
    with pytest.raises(Refused) as refused:
        await stage.beat(request)
    return refused.value.code


# Go asks whether we are well, without saying who it is, before it trusts a stream that had failed.


async def test_a_probe_without_a_name_is_answered() -> None:
    stage = Stage()
    call = stage.clients.rpc(FakeContext(), "Heartbeat")
    assert (await stage.client_lifecycle.heartbeat(call, HeartbeatRequest())).status.code == Code.OK
    assert stage.codes == []


async def test_a_heartbeat_without_a_name_is_not() -> None:
    stage = Stage()
    call = stage.clients.rpc(FakeContext(), "Heartbeat")
    with pytest.raises(Refused) as refused:
        await stage.client_lifecycle.heartbeat(call, push())
    assert refused.value.code == Code.CLIENT_ID_REQUIRED


# With settings.


async def test_a_consumer_is_what_its_settings_say() -> None:
    stage = Stage()
    await stage.talk(consumer_settings(topics=("b", "a"), expression=" x || y "))
    await stage.beat(push())
    (body,) = bodies(stage)
    assert body["producerDataSet"] == []
    part = consumer(stage)
    assert part["groupName"] == "g"
    assert part["consumeType"] == "CONSUME_PASSIVELY"
    assert part["messageModel"] == "CLUSTERING"
    assert part["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert [one["topic"] for one in part["subscriptionDataSet"]] == ["a", "b"]
    first = part["subscriptionDataSet"][0]
    assert (first["subString"], first["expressionType"]) == ("x || y", "TAG")
    # Java's hash codes, by which brokers filter.
    assert (first["tagsSet"], first["codeSet"]) == (["x", "y"], [120, 121])


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (FilterType.TAG, "*", ("*", [], "TAG")),
        (FilterType.TAG, "", ("*", [], "TAG")),
        (FilterType.FILTER_TYPE_UNSPECIFIED, "a||", ("a||", ["a"], "TAG")),
        (FilterType.SQL, "a > 1 || b", ("a > 1 || b", [], "SQL92")),
    ],
)
async def test_filters_are_told_as_brokers_know_them(
    kind: FilterType, text: str, wanted: tuple[str, list[str], str]
) -> None:
    settings = consumer_settings()
    settings.subscription.subscriptions[0].expression.CopyFrom(FilterExpression(type=kind, expression=text))
    stage = Stage()
    await stage.talk(settings)
    (found,) = consumer(stage)["subscriptionDataSet"]
    assert (found["subString"], found["tagsSet"], found["expressionType"]) == wanted


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (ClientType.PUSH_CONSUMER, "CONSUME_PASSIVELY"),
        (ClientType.LITE_PUSH_CONSUMER, "CONSUME_PASSIVELY"),
        (ClientType.SIMPLE_CONSUMER, "CONSUME_ACTIVELY"),
        (ClientType.PULL_CONSUMER, "CONSUME_ACTIVELY"),
        (ClientType.LITE_SIMPLE_CONSUMER, "CONSUME_ACTIVELY"),
    ],
)
async def test_every_kind_of_consumer_is_taken(kind: ClientType, wanted: str) -> None:
    stage = Stage()
    await stage.talk(consumer_settings(kind=kind))
    assert (await stage.beat(push(kind=kind))).status.code == Code.OK
    assert consumer(stage)["consumeType"] == wanted


async def test_a_heartbeat_that_says_nothing_is_what_the_settings_say() -> None:
    stage = Stage()
    await stage.talk(consumer_settings())
    assert (await stage.beat()).status.code == Code.OK


async def test_equal_heartbeats_cost_nothing() -> None:
    stage = Stage()
    await stage.talk(consumer_settings())
    for _ in range(100):
        await stage.beat(push())
    assert stage.codes == [HEART_BEAT]
    # Java sends its settings every five minutes, Rust every thirty seconds.
    await stage.talk(consumer_settings())
    await stage.beat(push())
    assert len(set(map(orjson.dumps, bodies(stage)))) == 1


async def test_now_and_then_it_is_told_that_nothing_has_changed() -> None:
    stage = Stage(client_expiry=30.0)
    await stage.talk(consumer_settings())
    part = stage.client().registration
    assert part is not None
    part.registered_at -= 11
    await stage.beat(push())
    assert stage.codes == [HEART_BEAT, HEART_BEAT]
    assert len(set(map(orjson.dumps, bodies(stage)))) == 1


async def test_other_subscriptions_are_news_and_newer() -> None:
    stage = Stage()
    await stage.talk(consumer_settings(topics=("a",)))
    await asyncio.sleep(0.002)
    await stage.talk(consumer_settings(topics=("a", "b")))
    first, second = (body["consumerDataSet"][0]["subscriptionDataSet"] for body in bodies(stage))
    assert [one["topic"] for one in second] == ["a", "b"]
    # Brokers keep the one with the larger version.
    assert second[0]["subVersion"] > first[0]["subVersion"]


# Without settings: they went to another replica, or the stream is gone (C#, Python, Go, C++).


async def test_a_consumer_without_settings_is_what_its_receives_say() -> None:
    stage = Stage()
    client = stage.client()
    assert (await stage.beat(push())).status.code == Code.OK
    # Nothing is known yet: an empty subscription would take the topics from the rest of the group.
    assert stage.codes == []
    receive = ReceiveMessageRequest(filter_expression=FilterExpression(type=FilterType.TAG, expression="x"))
    client.record_subscription("orders", receive.filter_expression)
    await stage.beat(push())
    assert [(one["topic"], one["subString"]) for one in consumer(stage)["subscriptionDataSet"]] == [("orders", "x")]
    await stage.beat(push())
    assert stage.codes == [HEART_BEAT]


async def test_a_producer_without_settings_is_what_its_sends_say() -> None:
    stage = Stage()
    client = stage.client()
    assert (await stage.beat(PRODUCING)).status.code == Code.OK
    assert stage.codes == []
    client.record_publication("orders")
    await stage.beat(PRODUCING)
    await settle()
    assert [one["groupName"] for one in bodies(stage)[0]["producerDataSet"]] == ["orders"]


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, 99])
async def test_who_is_nothing_is_refused(kind: ClientType) -> None:
    assert await refusal(Stage(), push(kind=kind)) == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize("group", ["", "no such group", "CID_RMQ_SYS_x"])
async def test_a_consumer_needs_a_group(group: str) -> None:
    assert await refusal(Stage(), push(group)) == Code.ILLEGAL_CONSUMER_GROUP


async def test_who_changes_its_group_leaves_the_former() -> None:
    stage = Stage()
    client = stage.client()
    client.record_subscription("orders", FilterExpression(expression="*"))
    await stage.beat(push("g"))
    await stage.beat(push("h"))
    assert stage.codes == [HEART_BEAT, UNREGISTER, HEART_BEAT]
    assert stage.core.fields[1] == {"consumerGroup": "g", "clientID": "c1"}


# Slow and broken brokers.


async def test_a_slow_broker_does_not_make_us_look_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_RESPONSE_TIMEOUT", 0.01)
    stage = Stage(FakeCore(pending=[]))
    stage.client().record_subscription("orders", FilterExpression(expression="*"))
    assert (await stage.beat(push())).status.code == Code.OK
    assert stage.core.pending is not None
    stage.core.pending[0].set_exception(Overloaded("late, and of no consequence"))
    await settle()


async def test_what_failed_is_tried_again() -> None:
    def fail(_: RemotingCommand) -> Exception:
        return Overloaded("not now")

    stage = Stage(FakeCore(answer=fail))
    stage.client().record_subscription("orders", FilterExpression(expression="*"))
    with pytest.raises(Overloaded):
        await stage.beat(push())
    stage.core.answer = lambda _: commands.success()
    assert (await stage.beat(push())).status.code == Code.OK
    assert stage.codes == [HEART_BEAT, HEART_BEAT]


# Farewells.


async def test_a_consumer_says_goodbye() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    client = stage.client()
    assert await terminate(stage, group=Resource(name="g")) == Code.OK
    assert stage.codes == [HEART_BEAT, UNREGISTER]
    assert stage.core.fields[-1] == {"consumerGroup": "g", "clientID": "c1"}
    assert is_closed(client)
    assert await talk.read() is None
    assert len(stage.clients) == 0


async def test_a_producer_says_goodbye_to_all_of_its_topics() -> None:
    stage = Stage()
    await stage.talk(producer_settings("a", "b"))
    await settle()
    # Go names an empty group.
    assert await terminate(stage, group=Resource(name="")) == Code.OK
    own = [fields for client, code, fields, _ in stage.core.handled if code == UNREGISTER and client.client_id == "c1"]
    assert own == [{"producerGroup": "a", "clientID": "c1"}, {"producerGroup": "b", "clientID": "c1"}]
    assert len(stage.client_lifecycle.producers) == 0


async def test_goodbye_may_be_said_twice_and_by_strangers() -> None:
    stage = Stage()
    await stage.talk(consumer_settings())
    for _ in range(3):
        assert await terminate(stage) == Code.OK
    assert stage.codes == [HEART_BEAT, UNREGISTER]


async def test_a_broker_that_does_not_listen_to_a_farewell_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_RESPONSE_TIMEOUT", 0.01)
    stage = Stage()
    await stage.talk(consumer_settings())
    stage.core.pending = []
    assert await terminate(stage) == Code.OK
    stage.core.pending[0].set_exception(Overloaded("late"))
    await stage.client_lifecycle.close()


# Without a farewell.


async def connected(stage: Stage) -> tuple[Client, FakeConnection]:
    """A consumer over one connection."""
    connection = FakeConnection()
    client = stage.clients.rpc(stage.context(connection=connection), "Heartbeat").client
    client.record_subscription("orders", FilterExpression(expression="*"))
    await stage.client_lifecycle.heartbeat(Rpc(client, stage.context(), PEER), push())
    return client, connection


def is_closed(client: Client) -> bool:
    return client.closed


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_who_falls_silent_has_left() -> None:
    stage, began = Stage(), now()
    client, _ = await connected(stage)
    stage.client_lifecycle.sweep(began + 89)
    assert not is_closed(client)
    stage.client_lifecycle.sweep(now() + 91)
    await settle()
    assert is_closed(client)
    assert stage.codes == [HEART_BEAT, UNREGISTER]


async def test_who_lost_its_connection_has_a_moment_to_come_back() -> None:
    stage = Stage()
    began = now()
    client, connection = await connected(stage)
    stage.clients.disconnected(connection)
    stage.client_lifecycle.sweep(began + 9)
    assert not is_closed(client)
    stage.clients.rpc(stage.context(connection=FakeConnection()), "ReceiveMessage")
    stage.client_lifecycle.sweep(began + 60)
    assert not is_closed(client)
    assert stage.codes == [HEART_BEAT]


async def test_who_does_not_come_back_has_left() -> None:
    stage = Stage()
    client, connection = await connected(stage)
    stage.clients.disconnected(connection)
    stage.client_lifecycle.sweep(now() + 11)
    await settle()
    assert is_closed(client)
    assert stage.codes == [HEART_BEAT, UNREGISTER]


async def test_who_has_left_may_come_back() -> None:
    stage = Stage()
    await connected(stage)
    stage.client_lifecycle.sweep(now() + 91)
    await settle()
    again, _ = await connected(stage)
    assert not again.closed
    assert stage.codes == [HEART_BEAT, UNREGISTER, HEART_BEAT]


async def test_at_the_end_everybody_leaves() -> None:
    stage = Stage()
    await stage.talk(consumer_settings(), "c1")
    await stage.talk(consumer_settings(), "c2")
    await stage.client_lifecycle.close()
    assert stage.codes == [HEART_BEAT, HEART_BEAT, UNREGISTER, UNREGISTER]
    assert len(stage.clients) == 0


# Headers.


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("JAVA", "JAVA"),
        ("GO", "GO"),
        ("GOLANG", "GO"),
        ("PYTHON", "PYTHON"),
        ("HTTP", "HTTP"),
        ("CPP", "CPP"),
        ("RUST", "RUST"),
        ("DOTNET", "DOTNET"),
        ("DOT_NET", "DOTNET"),
        ("csharp", "OTHER"),
        ("rust", "RUST"),
        ("", "OTHER"),
        ("\N{SNOWMAN}", "OTHER"),
    ],
)
def test_a_language_is_never_an_error(said: str, told: str) -> None:
    assert language(said) == told
    assert told in LanguageCode.__members__


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("5.0.7", version_ordinal(5, 0, 7)),
        ("5.1.4+a1b2c3", version_ordinal(5, 1, 4)),
        ("V5_1_4", version_ordinal(5, 1, 4)),
        ("5.0.7-SNAPSHOT", version_ordinal(5, 0, 7)),
        ("2.0.0", OWN_VERSION),
        ("5.0.70", OWN_VERSION),
        ("", OWN_VERSION),
        ("next", OWN_VERSION),
    ],
)
def test_a_version_is_never_an_error(said: str, told: int) -> None:
    assert version(said) == told


async def test_settings_that_come_faster_than_brokers_answer_are_told_one_after_the_other() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings("g", ("first",)))
    stage.core.handled.clear()
    stage.core.pending = []
    for number in range(100):
        talk.send(TelemetryCommand(settings=consumer_settings("g", (f"t{number}",))))
        await talk.read()
    await settle()
    [in_flight], stage.core.pending = stage.core.pending, None
    in_flight.set_result(commands.success())
    await settle()
    # What was newest when the broker had answered, and nothing in between.
    told = [part["subscriptionDataSet"][0]["topic"] for body in bodies(stage) for part in body["consumerDataSet"]]
    assert len(told) == 2
    assert told[-1] == "t99"

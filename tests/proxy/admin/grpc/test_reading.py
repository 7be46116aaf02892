"""Reads of the Admin service: topics, subscriptions, progress, messages."""

import asyncio
import time
from typing import Any

import grpc.aio
import orjson
import pytest

from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterType, MessageType
from proxy.admin.grpc.service import AdminService
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.messages import BatchMessage, SysFlag
from tests.cluster.client import Client, create_topic, unique
from tests.proxy.admin.grpc.stage import Stage, moment, name
from tests.proxy.admin.http.replicas import GROUP, PUSH_GROUP, UNIQUE_ID

pytestmark = pytest.mark.anyio


def test_every_rpc_of_the_contract_is_served(served: Stage) -> None:
    service = AdminService(served.app.admin_services, served.app.admin.gatekeeping)
    methods = pb.DESCRIPTOR.services_by_name["Admin"].methods_by_name
    assert len(methods) == 16
    assert service.rpcs.keys() == set(methods.keys())
    for method, rpc in service.rpcs.items():
        assert rpc.response.DESCRIPTOR is methods[method].output_type


# Topics.


async def test_a_topic_is_described(served: Stage) -> None:
    answer = await served.read("DescribeTopicStatus", pb.DescribeTopicStatusRequest(topic=name(served.topic)))
    assert answer.topic_message_type == MessageType.NORMAL
    assert answer.description == "broker-a: 2 queues to read, 2 to write, permission RW"
    assert not answer.HasField("create_timestamp")


async def test_topic_status_has_type_and_attributes(served: Stage) -> None:
    topic = await create_topic(served.clients.replica.address, "ordered", 1, "FIFO")
    answer = await served.read("DescribeTopicStatus", pb.DescribeTopicStatusRequest(topic=name(topic)))
    assert (answer.topic_message_type, dict(answer.tags)) == (MessageType.FIFO, {"message.type": "FIFO"})


@pytest.mark.parametrize(
    ("topic", "code"), [("nowhere", Code.TOPIC_NOT_FOUND), ("", Code.ILLEGAL_TOPIC), ("a b", Code.ILLEGAL_TOPIC)]
)
async def test_missing_topic_is_not_found(served: Stage, topic: str, code: Any) -> None:
    await served.read("DescribeTopicStatus", pb.DescribeTopicStatusRequest(topic=name(topic)), code)
    await served.read("GetTopicRoute", pb.GetTopicRouteRequest(topic=name(topic)), code)


async def test_topic_route_has_the_brokers_own_addresses(served: Stage) -> None:
    answer = await served.read("GetTopicRoute", pb.GetTopicRouteRequest(topic=name(served.topic)))
    route = orjson.loads(answer.topic_route_data)
    assert [(row["brokerName"], row["readQueueNums"]) for row in route["queueDatas"]] == [("broker-a", 2)]
    assert list(route["brokerDatas"][0]["brokerAddrs"]) == ["0"]


# Subscriptions.


async def test_the_dashboard_finds_groups_and_their_clients(served: Stage) -> None:
    """As RocketMQ's dashboard does: groups first, by empty names; then the clients of each."""
    request = pb.ListSubscriptionRequest(topic=name(""), group=name(""))
    answer = await served.read("ListSubscription", request)
    found = {info.group.name for info in answer.subscription_info}
    assert found == {GROUP, PUSH_GROUP}
    clients = {}
    for group in found:
        answer = await served.read("ListConsumerConnection", pb.ListConsumerConnectionRequest(group=name(group)))
        clients[group] = [
            (client.client_id, client.hostname, client.language, client.version, client.egress_ip)
            for client in answer.client_info
        ]
    assert clients == {
        GROUP: [("192.0.2.7@4711", "192.0.2.7", "JAVA", "5.3.4", "127.0.0.1")],
        PUSH_GROUP: [("grpc@1", "grpc", "JAVA", "5.1.1", "127.0.0.1")],
    }


async def test_subscriptions_of_a_group(served: Stage) -> None:
    answer = await served.read("ListSubscription", pb.ListSubscriptionRequest(group=name(GROUP)))
    (info,) = answer.subscription_info
    assert (info.group.name, info.topic.name, info.online) == (GROUP, served.topic, True)
    assert (info.expression.type, info.expression.expression) == (FilterType.TAG, "*")
    assert info.message_model == pb.MessageModel.CLUSTERING
    assert info.subscription_consistency
    assert time.time() - 600 < info.last_update_timestamp.seconds <= time.time() + 1


async def test_subscriptions_to_a_topic(served: Stage) -> None:
    answer = await served.read("ListSubscription", pb.ListSubscriptionRequest(topic=name(served.topic)))
    assert {info.group.name for info in answer.subscription_info if info.online} == {GROUP, PUSH_GROUP}
    answer = await served.read(
        "ListSubscription", pb.ListSubscriptionRequest(topic=name("elsewhere"), group=name(GROUP))
    )
    assert not answer.subscription_info


async def test_differing_subscriptions_are_listed_per_member(served: Stage) -> None:
    address, group = served.clients.replica.address, unique("uneven")
    async with Client(address, "192.0.2.7@1") as one, Client(address, "192.0.2.7@2") as other:
        await one.heartbeat({group: [served.topic]})
        subscription = {"topic": served.topic, "subString": "TagA", "expressionType": "TAG", "subVersion": 1}
        part = {
            "groupName": group,
            "messageModel": "BROADCASTING",
            "consumeType": "CONSUME_PASSIVELY",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        body = {"clientID": "192.0.2.7@2", "producerDataSet": [], "consumerDataSet": [part]}
        # A time later by more than a millisecond.
        await asyncio.sleep(0.01)
        await other.get(RequestCode.HEART_BEAT, body=orjson.dumps(body))
        (listed,) = (
            await served.read("ListSubscription", pb.ListSubscriptionRequest(group=name(group)))
        ).subscription_info
        assert (listed.expression.expression, listed.subscription_consistency) == ("TagA", False)
        answer = await served.read("DescribeSubscription", pb.DescribeSubscriptionRequest(group=name(group)))
        rows = [
            (
                row.client_info.client_id,
                row.subscription_info.expression.expression,
                row.subscription_info.message_model,
                row.subscription_info.subscription_consistency,
            )
            for row in answer.client_subscription_info
        ]
    assert rows == [
        ("192.0.2.7@1", "*", pb.MessageModel.CLUSTERING, False),
        ("192.0.2.7@2", "TagA", pb.MessageModel.BROADCASTING, False),
    ]


async def test_group_without_members_is_offline(served: Stage) -> None:
    group = unique("gone")
    remoting = served.clients.remoting
    await remoting.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps({"groupName": group}))
    fields = {"consumerGroup": group, "topic": served.topic, "queueId": 0, "commitOffset": 1}
    await remoting.get(RequestCode.UPDATE_CONSUMER_OFFSET, remoting.named(fields))
    for request in (
        pb.ListSubscriptionRequest(group=name(group)),
        pb.ListSubscriptionRequest(group=name(group), topic=name(served.topic)),
    ):
        (info,) = (await served.read("ListSubscription", request)).subscription_info
        assert (info.group.name, info.topic.name, info.online) == (group, served.topic, False)
    answer = await served.read("DescribeSubscription", pb.DescribeSubscriptionRequest(group=name(group)))
    assert not answer.client_subscription_info
    answer = await served.read("ListConsumerConnection", pb.ListConsumerConnectionRequest(group=name(group)))
    assert not answer.client_info


async def test_connections_by_topic(served: Stage) -> None:
    for topic, count in ((served.topic, 1), ("elsewhere", 0)):
        request = pb.ListConsumerConnectionRequest(group=name(GROUP), topic=name(topic))
        assert len((await served.read("ListConsumerConnection", request)).client_info) == count
    lite = pb.ListConsumerConnectionRequest(group=name(GROUP), liteTopic="lite")
    await served.read("ListConsumerConnection", lite, Code.NOT_IMPLEMENTED)
    await served.read("ListConsumerConnection", pb.ListConsumerConnectionRequest(), Code.ILLEGAL_CONSUMER_GROUP)


# Progress of groups.


async def test_accumulation(served: Stage) -> None:
    address, group = served.clients.replica.address, unique("slow")
    topic = await create_topic(address, "lagging", 1)
    client = served.clients.remoting
    await client.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps({"groupName": group}))
    for number in range(5):
        await client.send(topic, b"%d" % number)
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 2}
    await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, client.named(fields))
    for topics in ([], [name(topic)]):
        request = pb.DescribeGroupAccumulationRequest(group=name(group), topics=topics)
        answer = await served.read("DescribeGroupAccumulation", request)
        assert list(answer.topic_accumulation) == [topic]
        for row in (answer.accumulation, answer.topic_accumulation[topic]):
            assert (row.accumulation, row.ready_messages, row.inflight_messages) == (3, 3, 0)
            assert 0 <= row.deliver_delay_time.ToMilliseconds() < 600_000
            assert abs(row.last_consume_timestamp / 1000 - time.time()) < 600
        assert answer.status.message == "OK"
    request = pb.DescribeGroupAccumulationRequest(group=name(group), topics=[name("nowhere")])
    await served.read("DescribeGroupAccumulation", request, Code.TOPIC_NOT_FOUND)
    request = pb.DescribeGroupAccumulationRequest(group=name(group), lite_topic="lite")
    await served.read("DescribeGroupAccumulation", request, Code.NOT_IMPLEMENTED)
    many = pb.DescribeGroupAccumulationRequest(group=name(group), topics=[name(f"t{n}") for n in range(101)])
    await served.read("DescribeGroupAccumulation", many, Code.BAD_REQUEST)


async def test_pop_retries_count_for_their_topic(served: Stage) -> None:
    address, group = served.clients.replica.address, unique("pops")
    topic = await create_topic(address, "popped", 1)
    retry = f"%RETRY%{group}_{topic}"
    client = served.clients.remoting
    await client.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps({"groupName": group}))
    fields = {"topic": retry, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    await client.get(RequestCode.UPDATE_AND_CREATE_TOPIC, client.named({**fields, "topicFilterType": "SINGLE_TAG"}))
    await client.send(topic, b"1")
    await client.send(retry, b"2")
    request = pb.DescribeGroupAccumulationRequest(group=name(group), topics=[name(topic)])
    answer = await served.read("DescribeGroupAccumulation", request)
    assert {key: row.accumulation for key, row in answer.topic_accumulation.items()} == {topic: 2}


async def test_time_spans(served: Stage) -> None:
    answer = await served.read("QueryTimeSpan", pb.QueryTimeSpanRequest(group=name(GROUP), topics=[name(served.topic)]))
    first, second = answer.queue_time_span_list
    assert (first.message_queue.topic.name, first.message_queue.broker.name) == (served.topic, "broker-a")
    assert [first.message_queue.id, second.message_queue.id] == [0, 1]
    assert first.min_timestamp == first.max_timestamp
    assert 0 <= first.delay_time_ms <= time.time() * 1000 - first.min_timestamp
    assert (second.min_timestamp, second.max_timestamp, second.delay_time_ms) == (0, 0, 0)
    # Without topics: those that the group has consumed, here none.
    answer = await served.read("QueryTimeSpan", pb.QueryTimeSpanRequest(group=name(unique("new"))))
    assert not answer.queue_time_span_list


# Messages.


async def test_a_message_by_its_ids(served: Stage) -> None:
    for wanted in (UNIQUE_ID, served.clients.message_id):
        request = pb.ListMessageRequest(topic=name(served.topic), message_id=wanted)
        (message,) = (await served.write("QueryMessage", request)).messages
        assert (message.body, message.system_properties.message_id) == (b"secret body", UNIQUE_ID)
        assert (message.system_properties.tag, list(message.system_properties.keys)) == ("A", ["secret-key"])
    for wanted in ("unknown", "0" * 32):
        request = pb.ListMessageRequest(topic=name(served.topic), message_id=wanted)
        await served.write("QueryMessage", request, Code.MESSAGE_NOT_FOUND)


async def test_messages_by_key(served: Stage) -> None:
    client = served.clients.remoting
    topic = await create_topic(served.clients.replica.address, "keyed", 1)
    for number in range(3):
        await client.send(topic, b"%d" % number, {"KEYS": "one two", "UNIQ_KEY": unique("id")})
    request = pb.ListMessageRequest(topic=name(topic), message_key="two")
    answer = await served.write("QueryMessage", request)
    assert {message.body for message in answer.messages} == {b"0", b"1", b"2"}
    pages = [
        await served.write(
            "QueryMessage",
            pb.ListMessageRequest(topic=name(topic), message_key="two", page_num=number, page_size=2),
        )
        for number in (1, 2)
    ]
    assert [len(page.messages) for page in pages] == [2, 1]
    over = pb.ListMessageRequest(topic=name(topic), message_key="two", end_timestamp=moment(1))
    await served.write("QueryMessage", over, Code.MESSAGE_NOT_FOUND)


async def test_query_by_time_scrolls_in_parts(served: Stage) -> None:
    client = served.clients.remoting
    topic = await create_topic(served.clients.replica.address, "scanned", 2)
    for number in range(10):
        await client.send(topic, b"%d" % number, {"TAGS": "even" if number % 2 == 0 else "odd"}, queue=number % 2)
    request = pb.ListMessageRequest(topic=name(topic), max_message_nums=3)
    bodies: list[bytes] = []
    for _ in range(5):
        answer = await served.write("QueryMessage", request)
        bodies += [message.body for message in answer.messages]
        if not answer.scroll_id:
            break
        request.scroll_id = answer.scroll_id
    assert bodies == [b"0", b"2", b"4", b"6", b"8", b"1", b"3", b"5", b"7", b"9"]
    odd = pb.ListMessageRequest(topic=name(topic), subscription="odd || none")
    assert [one.body for one in (await served.write("QueryMessage", odd)).messages] == bodies[5:]
    queue = pb.ListMessageRequest(topic=name(topic), broker_name="broker-a", queue_id=0)
    answer = await served.write("QueryMessage", queue)
    assert [one.body for one in answer.messages] == bodies[:5]
    stored = answer.messages[0].system_properties.store_timestamp
    await served.write(
        "QueryMessage", pb.ListMessageRequest(topic=name(topic), end_timestamp=moment(1)), Code.MESSAGE_NOT_FOUND
    )
    until = pb.ListMessageRequest(topic=name(topic), begin_timestamp=stored, end_timestamp=stored, queue_id=0)
    assert (await served.write("QueryMessage", until)).messages[0].body == b"0"


async def test_messages_of_an_inner_batch_are_listed_one_by_one(served: Stage) -> None:
    """A batch that cannot be decoded is one message, as consumers get it."""
    client = served.clients.remoting
    topic = await create_topic(served.clients.replica.address, "batched", 1)
    sys_flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    batch = [BatchMessage(0, b"first", properties.encode({"TAGS": "A"})), BatchMessage(0, b"second", "")]
    for body in (messages.encode_batch(batch), b"no batch"):
        await client.send(topic, body, {"TAGS": "A"}, sysFlag=sys_flag)
    answer = await served.write("QueryMessage", pb.ListMessageRequest(topic=name(topic)))
    assert [message.body for message in answer.messages] == [b"first", b"second", b"no batch"]
    tagged = pb.ListMessageRequest(topic=name(topic), subscription="A")
    answer = await served.write("QueryMessage", tagged)
    assert [message.body for message in answer.messages] == [b"first", b"no batch"]


async def test_query_message_limits_the_size_of_a_response(served: Stage) -> None:
    client = served.clients.remoting
    topic = await create_topic(served.clients.replica.address, "large", 1)
    for _ in range(4):
        await client.send(topic, b"x" * 1_500_000, {"KEYS": "large", "UNIQ_KEY": unique("id")})
    answer = await served.write("QueryMessage", pb.ListMessageRequest(topic=name(topic)))
    assert (len(answer.messages), bool(answer.scroll_id)) == (2, True)
    rest = pb.ListMessageRequest(topic=name(topic), scroll_id=answer.scroll_id)
    answer = await served.write("QueryMessage", rest)
    assert (len(answer.messages), answer.scroll_id) == (2, "")
    keyed = await served.write("QueryMessage", pb.ListMessageRequest(topic=name(topic), message_key="large"))
    assert len(keyed.messages) == 2


async def test_reader_gets_no_contents(served: Stage) -> None:
    topic = await create_topic(served.clients.replica.address, "hidden", 1)
    found = {"KEYS": "secret-key", "UNIQ_KEY": unique("id"), "TAGS": "A", "__SHARDINGKEY": "secret-group"}
    await served.clients.remoting.send(topic, b"secret", {**found, "card": "secret-number", "__BORNHOST": "secret"})
    by_id = pb.ListMessageRequest(topic=name(topic), message_id=found["UNIQ_KEY"])
    (full,) = (await served.write("QueryMessage", by_id)).messages
    system = full.system_properties
    assert (full.body, list(system.keys), system.message_group) == (b"secret", ["secret-key"], "secret-group")
    for request in (by_id, pb.ListMessageRequest(topic=name(topic), subscription="A")):
        (message,) = (await served.named("QueryMessage", request)).messages
        system = message.system_properties
        assert (system.message_id, system.tag, system.born_host) == (found["UNIQ_KEY"], "A", "127.0.0.1")
        assert not system.HasField("body_digest")
        assert b"secret" not in message.SerializeToString()
    by_key = pb.ListMessageRequest(topic=name(topic), message_key="secret-key")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.named("QueryMessage", by_key)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "admin.contents" in str(refused.value.details())
    assert served.app.admin.gatekeeping.refusals["contents"] == 1


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"message_id": ""}, Code.BAD_REQUEST),
        ({"lite_topic": "lite"}, Code.NOT_IMPLEMENTED),
        ({"page_num": 2}, Code.BAD_REQUEST),
        ({"scroll_id": "b29wcw=="}, Code.BAD_REQUEST),
        ({"scroll_id": "MQ=="}, Code.BAD_REQUEST),
        ({"scroll_id": "\u2603"}, Code.BAD_REQUEST),
        ({"scroll_id": "WyJhIiwgMCwgMTg0NDY3NDQwNzM3MDk1NTE2MTZd"}, Code.BAD_REQUEST),
        ({"begin_timestamp": moment(-1)}, Code.BAD_REQUEST),
    ],
)
async def test_invalid_queries_are_refused(served: Stage, wanted: dict[str, Any], code: Any) -> None:
    await served.named("QueryMessage", pb.ListMessageRequest(topic=name(served.topic), **wanted), code)


# The replica.


async def test_runtime_stats(served: Stage) -> None:
    client = served.clients.remoting
    topic = await create_topic(served.clients.replica.address, "counted", 1)

    async def stats_now() -> Any:
        return await served.read("GetProxyRuntimeStats", pb.GetProxyRuntimeStatsRequest())

    before, deadline = await stats_now(), time.monotonic() + 30
    # A connection closed a moment ago may still be counted.
    while before.connections > 2 and time.monotonic() < deadline:
        before = await stats_now()
    assert (before.connections, before.producers, before.consumers) == (2, 1, 2)
    assert before.proxy_name
    assert before.version
    await client.send(topic, b"1")
    await client.pull(topic, GROUP)
    stats, deadline = before, time.monotonic() + 30
    while not (stats.in_tps and stats.out_tps) and time.monotonic() < deadline:
        stats = await stats_now()
    assert stats.in_tps > 0
    assert stats.out_tps > 0

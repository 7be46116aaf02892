"""The Admin gRPC service in front of a real cluster: all its requests to brokers."""

import time
from typing import Any

import grpc.aio
import orjson
import pytest

from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.admin_pb2_grpc import AdminStub
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import command as commands
from remoting.codes import RequestCode
from tests.cluster.backends import Backend
from tests.cluster.client import Client, create_topic, unique
from tests.cluster.servers import HOST, TIMEOUT, Cluster, Gantry
from tests.ports import free_port
from tests.proxy.admin.grpc.stage import Caller, moment, name

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER, reason="it asks for the subscriptions that RocketMQ stores in a group's configuration"
    ),
    pytest.mark.anyio,
    pytest.mark.timeout(240, func_only=True),
]

_TOKEN = "a-token-for-operators"


@pytest.fixture(scope="module")
def admin(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A replica that serves it, with its address; tools of clients are not permitted."""
    address = f"{HOST}:{free_port()}"
    config = f'tools = "none"\n[admin]\nlisten = "off"\ngrpc = "{address}"\nwrite_token = "{_TOKEN}"\n'
    with Gantry(tmp_path_factory.mktemp("admin"), cluster.namesrv, config) as gantry:
        yield gantry, address


async def test_every_rpc_that_queries_brokers_returns_their_data(cluster: Cluster, admin: tuple[Gantry, str]) -> None:
    gantry, address = admin
    topic, group = await create_topic(cluster.broker, "admin", 2), unique("group")
    async with (
        grpc.aio.insecure_channel(address) as channel,
        Client(gantry.address) as client,
    ):
        call = Caller(AdminStub(channel), (("authorization", f"Bearer {_TOKEN}"),))
        _answer(client)
        await client.route(topic)
        await client.heartbeat({group: [topic]})
        sent = await _messages_are_found(call, topic)
        await _groups_are_described_and_reset(call, client, group, topic)
        await _one_client_is_asked(call, client, group, topic, sent[1])
        await _topics_are_described(call, cluster.broker, topic)
        await _a_configured_subscription_is_deleted(call, cluster.broker, topic)


async def _messages_are_found(call: Caller, topic: str) -> list[str]:
    """Send messages and query them; return their ids."""
    key = unique("key")
    sent = []
    for number in range(4):
        message = pb.AdminSendMessageRequest(topic=name(topic), body=b"%d" % number, tag="A", key=key)
        sent.append((await call("AdminSendMessage", message)).message_id)
    by_key = pb.ListMessageRequest(topic=name(topic), message_key=key)
    answer = await _found(call, by_key, 4)
    assert {message.body for message in answer.messages} == {b"0", b"1", b"2", b"3"}
    by_id = pb.ListMessageRequest(topic=name(topic), message_id=sent[0])
    (found,) = (await call("QueryMessage", by_id)).messages
    assert found.system_properties.message_id == sent[0]
    first = pb.ListMessageRequest(topic=name(topic), subscription="A", max_message_nums=3)
    answer = await call("QueryMessage", first)
    rest = pb.ListMessageRequest(topic=name(topic), subscription="A", scroll_id=answer.scroll_id)
    listed = [*answer.messages, *(await call("QueryMessage", rest)).messages]
    assert sorted(message.body for message in listed) == [b"0", b"1", b"2", b"3"]
    early = pb.ListMessageRequest(topic=name(topic), end_timestamp=moment(1_000))
    await call("QueryMessage", early, Code.MESSAGE_NOT_FOUND)
    return sent


async def _groups_are_described_and_reset(call: Caller, client: Client, group: str, topic: str) -> None:
    answer = await call("ListSubscription", pb.ListSubscriptionRequest(topic=name(topic)))
    assert [(info.group.name, info.online) for info in answer.subscription_info] == [(group, True)]
    answer = await call("ListConsumerConnection", pb.ListConsumerConnectionRequest(group=name(group)))
    assert [info.client_id for info in answer.client_info] == [client.client_id]
    answer = await call("DescribeSubscription", pb.DescribeSubscriptionRequest(group=name(group)))
    assert [row.subscription_info.topic.name for row in answer.client_subscription_info] == [topic]
    # A broker does not reset a group without an offset in one of the queues.
    for queue, offset in ((0, 1), (1, 0)):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, client.named(fields))
    for topics in ([], [name(topic)]):
        request = pb.DescribeGroupAccumulationRequest(group=name(group), topics=topics)
        row = (await call("DescribeGroupAccumulation", request)).topic_accumulation[topic]
        assert (row.accumulation, row.ready_messages, row.inflight_messages) == (3, 3, 0)
        assert 0 <= row.deliver_delay_time.ToMilliseconds() < 60_000
    spans = (await call("QueryTimeSpan", pb.QueryTimeSpanRequest(group=name(group)))).queue_time_span_list
    assert [(span.message_queue.topic.name, span.message_queue.id) for span in spans] == [(topic, 0), (topic, 1)]
    assert all(abs(span.min_timestamp / 1000 - time.time()) < 60 for span in spans)
    assert all(0 <= span.delay_time_ms < 60_000 for span in spans)
    reset = pb.ResetGroupOffsetRequest(group=name(group), topic=name(topic), reset_timestamp=moment(1_000))
    await call("ResetGroupOffset", reset)
    assert (await client.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)).fields["group"] == group


async def _one_client_is_asked(call: Caller, client: Client, group: str, topic: str, message_id: str) -> None:
    which: dict[str, Any] = {"group": name(group), "client_id": client.client_id}
    stack = await call("PrintThreadStackTrace", pb.PrintThreadStackTraceRequest(**which))
    assert stack.thread_stack_trace == "main at work"
    info = await call("GetConsumerRunningInfo", pb.GetConsumerRunningInfoRequest(**which))
    assert info.consumer_running_info.properties["seen-by"] == "the test"
    await call("VerifyMessage", pb.VerifyMessageRequest(**which, topic=name(topic), message_id=message_id))
    asked = client.pushed(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert [command.fields["topic"] for command in asked] == [topic]
    nobody = pb.GetConsumerRunningInfoRequest(group=name(group), client_id="nobody")
    await call("GetConsumerRunningInfo", nobody, Code.NOT_FOUND)


async def _topics_are_described(call: Caller, broker: str, topic: str) -> None:
    answer = await call("DescribeTopicStatus", pb.DescribeTopicStatusRequest(topic=name(topic)))
    assert "2 queues to read" in answer.description
    answer = await call("GetTopicRoute", pb.GetTopicRouteRequest(topic=name(topic)))
    assert broker in answer.topic_route_data
    await call("GetTopicRoute", pb.GetTopicRouteRequest(topic=name("nowhere")), Code.TOPIC_NOT_FOUND)


async def _a_configured_subscription_is_deleted(call: Caller, broker: str, topic: str) -> None:
    # Brokers support few attributes by themselves.
    kept, gone = ({"topic": each, "expressionType": "TAG", "expression": "*", "version": 1} for each in ("t", topic))
    config = {"groupName": unique("configured"), "retryMaxTimes": 3, "subscriptionDataSet": [kept, gone]}
    async with Client(broker) as tool:
        await tool.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps(config))
        which: dict[str, Any] = {"group": name(str(config["groupName"])), "topic": name(topic)}
        await call("DeleteSubscription", pb.DeleteSubscriptionRequest(**which))
        await call("DeleteSubscription", pb.DeleteSubscriptionRequest(**which), Code.NOT_FOUND)
        reply = await tool.get(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": config["groupName"]})
    left = orjson.loads(reply.body)
    assert ([item["topic"] for item in left["subscriptionDataSet"]], left["retryMaxTimes"]) == (["t"], 3)


async def _found(call: Caller, request: pb.ListMessageRequest, count: int) -> Any:
    """Wait for an answer with `count` messages: brokers index them a moment after the response to the send."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        answer = await call.stub.QueryMessage(request, metadata=call.metadata, timeout=TIMEOUT)
        if len(answer.messages) == count or time.monotonic() > deadline:
            return answer


def _answer(client: Client) -> None:
    """Make the client answer like a consumer."""
    info = {"properties": {"seen-by": "the test"}, "subscriptionSet": [], "mqTable": {}, "jstack": "main at work"}
    done = {"consumeResult": "CR_SUCCESS", "remark": None, "spentTimeMills": 3, "order": False, "autoCommit": True}
    client.answers = {
        RequestCode.GET_CONSUMER_RUNNING_INFO: lambda _: commands.success(body=orjson.dumps(info)),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: lambda _: commands.success(body=orjson.dumps(done)),
    }

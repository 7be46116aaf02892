"""Requests of operators' tools, through Gantry and directly to the servers."""

import re
from contextlib import suppress

import anyio
import anyio.to_thread
import orjson
import pytest

from remoting import command as commands
from remoting import fastjson, messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.cluster.client import BROKER, Client, create_topic, described, json, queue_fields, unique, wait_until
from tests.cluster.coverage import covers
from tests.cluster.servers import Cluster, Failed, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(420, func_only=True)]

# A request of mqadmin to a broker, which forwards it to the clients.
_INVOKE_CONSUMER_STATUS = 223

_RUNNING_INFO = {
    "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CLIENT_VERSION": "V5_4_0", "seen-by": "the test"},
    "subscriptionSet": [],
    "mqTable": {},
    "statusTable": {},
    "userConsumerInfo": {},
}
_CONSUMED = {"order": False, "autoCommit": True, "consumeResult": "CR_SUCCESS", "remark": "eaten", "spentTimeMills": 3}


def _answers(client: Client) -> None:
    """Make the client answer like a consumer."""

    def running(_: RemotingCommand) -> RemotingCommand:
        return commands.success(body=orjson.dumps(_RUNNING_INFO))

    def consume(_: RemotingCommand) -> RemotingCommand:
        return commands.success(body=orjson.dumps(_CONSUMED))

    client.answers = {RequestCode.GET_CONSUMER_RUNNING_INFO: running, RequestCode.CONSUME_MESSAGE_DIRECTLY: consume}


@covers(RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def test_a_tools_requests_reach_a_client_behind_any_replica(
    cluster: Cluster, gantry: Gantry, replica: Gantry
) -> None:
    topic, group = await create_topic(cluster.broker, "tool"), unique("group")
    async with Client(gantry.address) as consumer, Client(gantry.address) as near, Client(replica.address) as far:
        _answers(consumer)
        await consumer.heartbeat({group: [topic]})
        sent = await near.send(topic, b"eat me")
        whom = {"consumerGroup": group, "clientId": consumer.client_id}
        # The tool may be connected to a different replica than the client.
        for tool in (near, far):
            reply = await tool.get(RequestCode.GET_CONSUMER_RUNNING_INFO, {**whom, "jstackEnable": False})
            assert orjson.loads(reply.body) == _RUNNING_INFO
            push = await consumer.push(RequestCode.GET_CONSUMER_RUNNING_INFO)
            assert push.fields["jstackEnable"] == "false"
            question = {**whom, "msgId": sent.fields["msgId"], "brokerName": "broker-a", "topic": topic}
            reply = await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, question)
            assert reply.code == ResponseCode.SUCCESS, described(reply)
            assert orjson.loads(reply.body) == _CONSUMED
        absent = await near.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**whom, "clientId": "nobody"})
        assert absent.code in {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR}
        assert absent.remark


@covers(RequestCode.VIEW_BROKER_STATS_DATA)
async def test_figures_of_a_topic_are_those_of_the_named_broker(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "figures")
    figures = {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic}
    async with Client(gantry.address) as client:
        absent = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, client.named(figures))
        assert absent.code == ResponseCode.SYSTEM_ERROR
        assert topic in (absent.remark or "")
        for _ in range(3):
            await client.send(topic, b"x")

        async def counted() -> bool:
            # Brokers take a sample every ten seconds.
            reply = await client.get(RequestCode.VIEW_BROKER_STATS_DATA, client.named(figures))
            return bool(json(reply)["statsMinute"]["sum"] == 3)

        await wait_until(counted, "a sample")
        # Opened late: a connection that sends nothing for ten seconds is closed.
        async with Client(cluster.broker) as tool:
            direct = json(await tool.get(RequestCode.VIEW_BROKER_STATS_DATA, figures))
        assert direct["statsMinute"]["sum"] == 3
        assert direct["statsMinute"]["tps"] > 0
        unknown = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, {**figures, "bname": "nobody"})
        assert unknown.code != ResponseCode.SUCCESS


@covers(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
async def test_a_brokers_resets_and_offset_requests_reach_its_clients(cluster: Cluster, gantry: Gantry) -> None:
    topic, group = await create_topic(cluster.broker, "reset"), unique("group")
    table = b'{"messageQueueTable":{}}'
    async with Client(gantry.address) as consumer, Client(gantry.address) as other, Client(cluster.broker) as tool:
        consumer.answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = lambda _: commands.success(body=table)
        await consumer.heartbeat({group: [topic]})
        await other.heartbeat({unique("group"): [topic]})
        await consumer.send(topic, b"x")
        queue = queue_fields(topic, consumerGroup=group)
        await consumer.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 1})
        reset = {"topic": topic, "group": group, "timestamp": 0, "isForce": True}
        reply = await tool.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert reply.code == ResponseCode.SUCCESS, described(reply)
        push = await consumer.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        assert push.is_oneway
        assert (push.fields["topic"], push.fields["group"]) == (topic, group)
        assert b"offsetTable" in push.body
        status = await tool.ask(_INVOKE_CONSUMER_STATUS, {"topic": topic, "group": group, "clientAddr": ""})
        assert status.code == ResponseCode.SUCCESS, described(status)
        assert consumer.client_id.encode() in status.body
        push = await consumer.push(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        assert (push.fields["topic"], push.fields["group"]) == (topic, group)
        assert not other.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        assert not other.pushed(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)


# mqadmin needs Java on every backend.
@pytest.mark.external
async def test_mqadmin_lists_clients_and_has_them_consume_a_message(cluster: Cluster, gantry: Gantry) -> None:
    """The official tool connects to the name server, not to Gantry."""
    topic, group = await create_topic(cluster.broker, "admin"), unique("group")
    async with Client(gantry.address) as consumer:
        _answers(consumer)
        await consumer.heartbeat({group: [topic]})
        sent = await consumer.send(topic, b"x", {"UNIQ_KEY": unique("A")})
        await consumer.pull(topic, group)
        client_id = consumer.client_id
        queue = queue_fields(topic, consumerGroup=group)
        await consumer.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 1})

        async def prints(text: str, *words: str) -> None:
            """Retry, because the tool's time-out of three seconds includes its own start on a busy machine."""
            out = ""

            async def printed() -> bool:
                nonlocal out
                out = await anyio.to_thread.run_sync(lambda: cluster.admin(*words))
                return re.search(text, out) is not None

            with suppress(Failed):
                await wait_until(printed, text, 240)
            assert re.search(text, out), out

        message_id = sent.fields["msgId"]
        by_id = ("queryMsgById", "-i", message_id, "-g", group, "-d", client_id, "-t", topic)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prints, client_id, "consumerConnection", "-g", group)
            tasks.start_soon(prints, rf"{topic}\s+broker-a\s+0\s+1\s+1\s", "consumerProgress", "-g", group)
            tasks.start_soon(prints, "the test", "consumerStatus", "-g", group, "-i", client_id)
            tasks.start_soon(prints, "CR_SUCCESS", *by_id)
        push = await consumer.push(RequestCode.CONSUME_MESSAGE_DIRECTLY)
        [message] = messages.decode_messages(push.body)
        assert message.body == b"x"


@covers(
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
)
async def test_a_tool_creates_inspects_and_deletes_a_topic(gantry: Gantry) -> None:
    topic = unique("made")
    async with Client(gantry.address) as tool:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 3,
            "writeQueueNums": 3,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": "+message.type=FIFO",
        }
        await tool.get(RequestCode.UPDATE_AND_CREATE_TOPIC, tool.named(fields))
        known = json(await tool.get(RequestCode.GET_ALL_TOPIC_CONFIG, tool.named({})))["topicConfigTable"][topic]
        assert (known["readQueueNums"], known["attributes"]["message.type"]) == (3, "FIFO")

        async def routed() -> bool:
            reply = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return reply.code == ResponseCode.SUCCESS

        await wait_until(routed, "the new topic's route")
        one = json(await tool.get(RequestCode.GET_TOPIC_CONFIG, tool.named({"topic": topic})))
        assert (one["topicName"], one["readQueueNums"]) == (topic, 3)
        for body in (b"a", b"b"):
            await tool.send(topic, body, queue=1)

        async def counted() -> bool:
            reply = await tool.get(RequestCode.GET_TOPIC_STATS_INFO, tool.named({"topic": topic}))
            rows = fastjson.loads(reply.body)["offsetTable"].pairs
            bounds = {key["queueId"]: (row["minOffset"], row["maxOffset"]) for key, row in rows}
            return bounds == {0: (0, 0), 1: (0, 2), 2: (0, 0)}

        await wait_until(counted, "the messages in the topic's statistics")
        await tool.get(RequestCode.DELETE_TOPIC_IN_BROKER, tool.named({"topic": topic}))
        await tool.get(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
        assert topic not in json(await tool.get(RequestCode.GET_ALL_TOPIC_CONFIG, tool.named({})))["topicConfigTable"]
        gone = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST, described(gone)
        nothing = await tool.ask(RequestCode.GET_TOPIC_STATS_INFO, tool.named({"topic": topic}))
        assert nothing.code == ResponseCode.TOPIC_NOT_EXIST, described(nothing)


@covers(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
async def test_a_tool_creates_a_group_reads_its_progress_resets_and_deletes_it(
    cluster: Cluster, gantry: Gantry
) -> None:
    topic, group = await create_topic(cluster.broker, "progress"), unique("made")
    async with Client(gantry.address) as tool, Client(gantry.address) as consumer:
        config = {"groupName": group, "consumeMessageOrderly": True, "retryMaxTimes": 3}
        await tool.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"bname": BROKER}, orjson.dumps(config))
        table = json(await tool.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"bname": BROKER}))
        known = table["subscriptionGroupTable"][group]
        one = json(await tool.get(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, tool.named({"group": group})))
        assert (one["groupName"], one["retryMaxTimes"]) == (group, 3)
        assert (known["consumeMessageOrderly"], known["retryMaxTimes"]) == (True, 3)
        await consumer.heartbeat({group: [topic]})
        for body in (b"a", b"b", b"c"):
            await tool.send(topic, body)
        await consumer.pull_all(3, topic, group)
        queue = queue_fields(topic, consumerGroup=group)
        await consumer.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 2})
        stats = await tool.get(RequestCode.GET_CONSUME_STATS, tool.named({"consumerGroup": group, "topic": topic}))
        [(key, row)] = fastjson.loads(stats.body)["offsetTable"].pairs
        assert (key["topic"], key["queueId"]) == (topic, 0)
        assert (row["consumerOffset"], row["brokerOffset"]) == (2, 3)
        reset = {"topic": topic, "group": group, "timestamp": 0, "isForce": True}
        reply = await tool.get(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, tool.named(reset))
        [(key, offset)] = fastjson.loads(reply.body)["offsetTable"].pairs
        assert (key["topic"], offset) == (topic, 0)
        # These brokers leave resets to the members.
        push = await consumer.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        assert push.fields["group"] == group
        await tool.get(RequestCode.DELETE_SUBSCRIPTIONGROUP, tool.named({"groupName": group, "cleanOffset": True}))
        table = json(await tool.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"bname": BROKER}))
        assert group not in table["subscriptionGroupTable"]

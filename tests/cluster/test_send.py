"""Sends through Gantry, compared with the pulled messages."""

import base64
import time

import orjson
import pytest

from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.ids import OffsetMessageId, RecallHandle
from remoting.messages import BatchMessage
from tests.cluster.client import (
    Client,
    create_topic,
    described,
    json,
    send_fields,
    strings,
    subscription,
    unique,
    v2,
    wait_until,
    wait_until_end_is,
)
from tests.cluster.coverage import covers
from tests.cluster.servers import Cluster, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_PAIRS = {"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "0A000001000100000001000000010001", "ключ": "значение"}


@covers(RequestCode.PULL_MESSAGE, parameter="code")
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_pulled_message_is_as_it_was_sent(cluster: Cluster, gantry: Gantry, code: RequestCode) -> None:
    """Guards against messages with the proxy's address and without the producer's (8.17)."""
    topic = await create_topic(cluster.broker, "send")
    body = "тело".encode() + bytes(range(256))
    async with Client(gantry.address) as client:
        fields = client.named(send_fields(topic, properties.encode(_PAIRS), flag=7, bornTimestamp=1_699_999_999_999))
        reply = await client.get(code, v2(fields) if code == RequestCode.SEND_MESSAGE_V2 else fields, body)
        [message] = await client.pull(topic, unique("group"))
        sender = client.local_address
    stored = properties.decode(message.properties)
    assert stored.items() >= _PAIRS.items()
    assert stored[properties.BORN_HOST] == sender
    assert (message.topic, message.body, message.flag) == (topic, body, 7)
    assert (message.queue_id, message.queue_offset, message.born_timestamp) == (0, 0, 1_699_999_999_999)
    assert (reply.fields["queueId"], reply.fields["queueOffset"]) == ("0", "0")
    place = OffsetMessageId.parse(reply.fields["msgId"])
    assert (f"{place.host}:{place.port}", place.offset) == (cluster.broker, message.commit_log_offset)


@covers(RequestCode.SEND_BATCH_MESSAGE)
async def test_a_batch_of_many_small_messages_is_stored(cluster: Cluster, gantry: Gantry) -> None:
    """The ids in the response take more than a client's header may."""
    topic = await create_topic(cluster.broker, "batch")
    batch = [BatchMessage(0, b"%d" % number, "") for number in range(13_000)]
    async with Client(gantry.address) as client:
        fields = client.named(send_fields(topic, batch=True))
        reply = await client.get(RequestCode.SEND_BATCH_MESSAGE, v2(fields), messages.encode_batch(batch))
        assert len(set(reply.fields["msgId"].split(","))) == len(batch)
        await wait_until_end_is(client, topic, len(batch))


async def test_a_batch_is_pulled_as_single_messages(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "batch")
    batch = [BatchMessage(n, b"body %d" % n, properties.encode({"KEYS": f"k{n}", "WAIT": "true"})) for n in range(3)]
    async with Client(gantry.address) as client:
        fields = client.named(send_fields(topic, batch=True))
        reply = await client.get(RequestCode.SEND_BATCH_MESSAGE, v2(fields), messages.encode_batch(batch))
        found = await client.pull_all(3, topic, unique("group"))
    assert [(m.flag, m.body, properties.get(m.properties, "KEYS")) for m in found] == [
        (n, b"body %d" % n, f"k{n}") for n in range(3)
    ]
    ids = [OffsetMessageId.parse(text).offset for text in reply.fields["msgId"].split(",")]
    assert ids == [message.commit_log_offset for message in found]


async def test_a_signed_message_gets_no_born_host(cluster: Cluster, gantry: Gantry) -> None:
    """A signature covers every field: an added producer's address would invalidate it."""
    topic = await create_topic(cluster.broker, "signed")
    async with Client(gantry.address) as client:
        text = properties.encode({"KEYS": "k"})
        fields = client.named(send_fields(topic, text, AccessKey="ak", Signature="c2lnbmF0dXJl"))
        await client.get(RequestCode.SEND_MESSAGE_V2, v2(fields), b"x")
        [message] = await client.pull(topic, unique("group"))
    assert properties.get(message.properties, properties.BORN_HOST) is None


@covers(RequestCode.CONSUMER_SEND_MSG_BACK)
async def test_a_message_sent_back_is_redelivered_and_then_dead_lettered(cluster: Cluster, gantry: Gantry) -> None:
    topic, group = await create_topic(cluster.broker, "back"), unique("group")
    async with Client(gantry.address) as client:
        await client.heartbeat({group: [topic, f"%RETRY%{group}"]})
        # The retry topic exists from the first heartbeat on, as without a proxy.
        assert (await client.route(f"%RETRY%{group}"))["queueDatas"][0]["readQueueNums"] == 1
        await client.send(topic, b"again", {"KEYS": "k"})
        [message] = await client.pull(topic, group)
        back = client.named(
            {
                "offset": message.commit_log_offset,
                "group": group,
                "delayLevel": 1,
                "originTopic": topic,
                "originMsgId": "id",
                "unitMode": False,
                "maxReconsumeTimes": 16,
            }
        )
        begin = time.monotonic()
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        [again] = await client.pull(f"%RETRY%{group}", group, wait=10_000)
        assert time.monotonic() - begin > 0.5
        assert (again.body, again.reconsume_times) == (b"again", 1)
        assert properties.decode(again.properties).items() >= {"KEYS": "k", properties.RETRY_TOPIC: topic}.items()
        dead = {**back, "offset": again.commit_log_offset, "originTopic": f"%RETRY%{group}", "delayLevel": -1}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, dead)
        await wait_until(lambda: client.pull(f"%DLQ%{group}", group), "the dead letter")
        [letter] = await client.pull(f"%DLQ%{group}", group)
        assert (letter.body, letter.reconsume_times) == (b"again", 2)


@covers(RequestCode.RECALL_MESSAGE)
async def test_a_delayed_message_is_recalled(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "recall", kind="DELAY")
    due = int(time.time() * 1000) + 3000
    pairs = {properties.TIMER_DELIVER_MS: str(due)}
    async with Client(gantry.address) as client:
        kept = await client.send(topic, b"kept", {**pairs, "UNIQ_KEY": unique("A")})
        taken = await client.send(topic, b"taken", {**pairs, "UNIQ_KEY": unique("B")})
        handle = taken.fields["recallHandle"]
        assert RecallHandle.parse(handle).topic == topic
        fields = {"producerGroup": "test-producers", "topic": topic, "recallHandle": handle}
        # Also without bname: the handle contains the broker.
        reply = await client.get(RequestCode.RECALL_MESSAGE, fields)
        assert reply.fields["msgId"] == RecallHandle.parse(handle).message_id
        [message] = await client.pull(topic, unique("group"), wait=15_000)
        assert message.body == b"kept"
        assert int(time.time() * 1000) >= due - 1000
        assert await client.pull(topic, unique("group"), offset=1, wait=1000) == []
        assert kept.fields["recallHandle"] != handle
        bad = await client.ask(
            RequestCode.RECALL_MESSAGE, {**fields, "recallHandle": base64.b64encode(b"v9 x").decode()}
        )
    assert bad.code != ResponseCode.SUCCESS
    assert bad.remark


@covers(RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
async def test_a_message_is_found_by_key_and_by_message_id(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "query")
    async with Client(gantry.address) as client:
        reply = await client.send(topic, b"found", {"KEYS": "the-key", "UNIQ_KEY": unique("id")})
        fields = {"topic": topic, "key": "the-key", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}

        async def found() -> list[bytes]:
            answer = await client.ask(RequestCode.QUERY_MESSAGE, fields)
            assert answer.code in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}, described(answer)
            return [message.body for message in messages.decode_messages(answer.body)]

        # The broker writes its index after the answer to the send.
        await wait_until(found, "the message in the index")
        assert await found() == [b"found"]
        assert (await client.ask(RequestCode.QUERY_MESSAGE, {**fields, "key": "other"})).code == 22
        offset = OffsetMessageId.parse(reply.fields["msgId"]).offset
        view = await client.get(RequestCode.VIEW_MESSAGE_BY_ID, client.named({"topic": topic, "offset": offset}))
        [message] = messages.decode_messages(view.body)
        assert message.body == b"found"
        lost = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, client.named({"topic": topic, "offset": 2**40}))
        assert lost.code == ResponseCode.SYSTEM_ERROR
        assert lost.remark


@covers(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, parameter="code")
@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_reaches_the_requester_behind_another_replica(
    cluster: Cluster, gantry: Gantry, replica: Gantry, code: RequestCode
) -> None:
    topic, group = await create_topic(cluster.broker, "request"), unique("requesters")
    async with Client(gantry.address) as asker, Client(replica.address) as replier:
        await asker.route(topic)
        await asker.heartbeat(producers=[group])
        pairs = {
            "CORRELATION_ID": "c-1",
            "REPLY_TO_CLIENT": asker.client_id,
            "TTL": "3000",
            "CLUSTER": "DefaultCluster",
        }
        await asker.send(topic, b"question", pairs)
        [question] = await replier.pull(topic, unique("group"))
        received = properties.decode(question.properties)
        assert received.items() >= pairs.items()
        answer = {key: received[key] for key in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")} | {"MSG_TYPE": "reply"}
        fields = replier.named(
            send_fields("DefaultCluster_REPLY_TOPIC", properties.encode(answer), producerGroup=unique("repliers"))
        )
        reply = await replier.ask(code, v2(fields) if code == RequestCode.SEND_REPLY_MESSAGE_V2 else fields, b"answer")
        assert reply.code == ResponseCode.SUCCESS, described(reply)
        push = await asker.push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        assert push.body == b"answer"
        assert properties.get(push.fields["properties"], "CORRELATION_ID") == "c-1"
        assert not replier.pushes


@covers(RequestCode.CHECK_CLIENT_CONFIG)
async def test_a_filter_expression_is_compiled_by_a_broker(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against approval of every expression, so that an invalid one fails with each pull (8.12)."""
    topic, group = await create_topic(cluster.broker, "sql"), unique("group")
    async with Client(gantry.address) as client:

        async def check(expression: str) -> int:
            body = {
                "clientId": client.client_id,
                "group": group,
                "namespace": "",
                "subscriptionData": subscription(topic, expression, "SQL92"),
            }
            reply = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(body))
            assert reply.code == ResponseCode.SUCCESS or reply.remark
            return reply.code

        assert await check("index between 3 and 7") == ResponseCode.SUCCESS
        assert await check("index between and") == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@covers(RequestCode.GET_ROUTEINFO_BY_TOPIC)
async def test_a_route_contains_gantrys_address_in_the_clients_json_dialect(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "route", queues=3)
    async with Client(gantry.address) as client, Client(cluster.addresses["namesrv"]) as direct:
        fields = {"topic": topic}
        new = await client.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        old = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=399)
        asked = await client.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {**fields, "acceptStandardJsonOnly": True}, version=399
        )
        real = await direct.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {**fields, "acceptStandardJsonOnly": True})
        unknown = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": unique("nowhere")})
        template = await client.route("TBW102")
    route = json(new)
    assert route["queueDatas"] == json(real)["queueDatas"]
    assert [broker["brokerAddrs"] for broker in route["brokerDatas"]] == [{"0": gantry.address}]
    assert {**json(real), "brokerDatas": None} == {**route, "brokerDatas": None}
    # Clients before 4.9.4 read fastjson's dialect, in which the broker ids are bare numbers.
    assert b'{0:"' + gantry.address.encode() + b'"}' in old.body
    assert json(asked) == route
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert unknown.remark
    assert template["brokerDatas"][0]["brokerAddrs"] == {"0": gantry.address}


async def test_a_topic_is_created_by_the_first_send(gantry: Gantry) -> None:
    """Guards against the rejection of sends to topics that the broker would create (8.14)."""
    topic = unique("created")
    async with Client(gantry.address) as client:
        assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == 17
        await client.send(topic, b"first")

        async def routed() -> bool:
            return (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == 0

        await wait_until(routed, "the new topic's route")
        [message] = await client.pull(topic, unique("group"))
        assert message.body == b"first"


async def test_a_message_without_the_type_of_its_topic_is_accepted(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against the rejection of messages whose type the proxy guessed (8.14)."""
    topic = await create_topic(cluster.broker, "fifo", kind="FIFO")
    async with Client(gantry.address) as client:
        await client.send(topic, b"ordered by the queue alone")
        assert len(await client.pull(topic, unique("group"))) == 1


async def test_a_send_response_contains_the_brokers_region_and_trace_switch(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against an empty region and a trace switch that replace the broker's values (8.15)."""
    topic = await create_topic(cluster.broker, "trace")
    async with Client(gantry.address) as client, Client(cluster.broker) as direct:
        through = await client.send(topic, b"x")
        real = await direct.send(topic, b"x")
    assert strings({key: through.fields[key] for key in ("MSG_REGION", "TRACE_ON")}) == {
        key: real.fields[key] for key in ("MSG_REGION", "TRACE_ON")
    }

"""Remoting requests that cost more than they say, with a good client beside them."""

import asyncio

import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.attacks.good_client import memory_released, observed, send_fields
from tests.benchmark.processes import rss_mb
from tests.cluster.client import Client, unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
_HOUR_MS = "3600000"


def _pull(topic: str) -> dict[str, object]:
    return {
        "consumerGroup": unique("group"),
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 2,
        "commitOffset": 0,
        "suspendTimeoutMillis": _HOUR_MS,
        "subVersion": 0,
        "bname": "broker-a",
    }


@pytest.mark.complete
async def test_polls_with_large_bodies_and_closed_connections_leave_the_budget_free(replica: Gantry) -> None:
    topic = unique("topic")
    before = rss_mb(replica.pid)
    async with observed(replica.address, replica.pid, topic) as observation:
        for _ in range(5):
            async with Client(replica.address) as client:
                large = client.begin(RequestCode.PULL_MESSAGE, _pull(topic), bytes(15 * MIB))
                client.begin(RequestCode.PULL_MESSAGE, _pull(topic))
                assert (await large).code != ResponseCode.SUCCESS
    # The frame itself is in memory once, and for a moment twice.
    observation.check(growth=100)
    await memory_released(replica.pid, before + 60)


async def test_lock_request_with_padding_is_not_multiplied_by_its_brokers(replica: Gantry) -> None:
    queues = [{"topic": "t", "brokerName": f"broker-{number}", "queueId": 0} for number in range(400)]
    body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues, "padding": "x" * 500_000}
    async with (
        observed(replica.address, replica.pid, unique("topic")) as observation,
        Client(replica.address) as client,
    ):
        await asyncio.gather(
            *(client.ask(RequestCode.LOCK_BATCH_MQ, {"bname": "broker-a"}, orjson.dumps(body)) for _ in range(4))
        )
    observation.check(growth=40)


@pytest.mark.parametrize("code", [RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.GET_CONSUMER_RUNNING_INFO])
async def test_body_of_a_stranger_is_not_delivered_to_another_client(replica: Gantry, code: RequestCode) -> None:
    async with (
        observed(replica.address, replica.pid, unique("topic")) as observation,
        Client(replica.address, unique("victim")) as victim,
        Client(replica.address) as stranger,
    ):
        group = unique("group")
        subscription = {"topic": "t", "subString": "*", "subVersion": 1}
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        heartbeat = {"clientID": victim.client_id, "consumerDataSet": [consumer], "producerDataSet": []}
        await victim.get(RequestCode.HEART_BEAT, {}, orjson.dumps(heartbeat))
        fields = {"consumerGroup": group, "clientId": victim.client_id, "brokerName": "broker-a", "msgId": "m"}
        reply = await stranger.ask(code, fields, b"forged")
        assert reply.code != ResponseCode.SUCCESS
        assert victim.pushed(code) == []
    observation.check(growth=16)


async def test_filter_of_thousands_of_conditions_concerns_its_consumer_only(replica: Gantry) -> None:
    topic = unique("topic")
    filters = (" AND ".join(["a = 'b'"] * 1200), " = ".join(["a"] * 3000), "(" * 3000, "NOT " * 3000 + "a IS NULL")
    async with (
        observed(replica.address, replica.pid, topic) as observation,
        Client(replica.address) as client,
    ):
        for expression in filters:
            fields = {
                **_pull(topic),
                "sysFlag": 6,
                "queueId": 1,
                "subscription": expression,
                "expressionType": "SQL92",
            }
            client.begin(RequestCode.PULL_MESSAGE, fields)
        await asyncio.sleep(0.2)
        # The polls wait at this queue: their filters are evaluated while this message is stored.
        await client.get(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue=1), b"x")
    observation.check(growth=40)

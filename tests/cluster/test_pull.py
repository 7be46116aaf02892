"""PULL, and the offsets of queues and groups."""

import time
from collections.abc import Callable

import anyio
import pytest

from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import PullSysFlag
from tests.cluster.client import (
    Client,
    create_topic,
    described,
    pull_fields,
    queue_fields,
    subscription,
    unique,
    wait_until,
)
from tests.cluster.coverage import covers
from tests.cluster.servers import Cluster, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]


@covers(parameter="code")
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_a_pull_waits_for_a_message(cluster: Cluster, gantry: Gantry, code: RequestCode) -> None:
    topic = await create_topic(cluster.broker, "poll")
    lite = PullSysFlag.LITE_PULL if code == RequestCode.LITE_PULL_MESSAGE else 0
    async with Client(gantry.address) as consumer, Client(gantry.address) as producer:
        fields = consumer.named(pull_fields(topic, unique("group"), wait=15_000))
        fields["sysFlag"] = int(fields["sysFlag"]) | lite  # type: ignore[call-overload]
        begin = time.monotonic()
        waiting = consumer.begin(code, fields, timeout=30)
        await anyio.sleep(0.7)
        assert not waiting.done()
        # The connection is free for other requests meanwhile.
        assert (await consumer.get(RequestCode.GET_MAX_OFFSET, queue_fields(topic))).fields["offset"] == "0"
        await producer.send(topic, b"at last")
        reply = await waiting
        assert time.monotonic() - begin < 12
    assert reply.code == ResponseCode.SUCCESS
    assert [message.body for message in messages.decode_messages(reply.body)] == [b"at last"]
    assert {name: reply.fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")} == {
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "1",
    }


async def test_a_pull_ends_empty_when_its_time_is_up(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "empty")
    async with Client(gantry.address) as client:
        begin = time.monotonic()
        reply = await client.ask(
            RequestCode.PULL_MESSAGE, client.named(pull_fields(topic, unique("group"), wait=1000)), timeout=45
        )
        assert time.monotonic() - begin > 0.9
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        beyond = await client.ask(
            RequestCode.PULL_MESSAGE, client.named(pull_fields(topic, unique("group"), offset=1000))
        )
        assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
        assert beyond.fields["nextBeginOffset"] == "0"


@pytest.mark.parametrize("written", [int, str], ids=["Java", "Go"])
async def test_a_pull_without_a_subscription_uses_that_of_the_heartbeat(
    cluster: Cluster, gantry: Gantry, written: Callable[[int], object]
) -> None:
    """Go clients write the hash codes of tags as strings."""
    topic, group = await create_topic(cluster.broker, "tags"), unique("group")
    async with Client(gantry.address) as client:
        tag = "wanted"
        wanted = {**subscription(topic, tag), "tagsSet": [tag], "codeSet": [written(_java_hash(tag))]}
        await client.heartbeat({group: [topic]}, subscriptionDataSet=[wanted])
        for name in ("other", tag, "other"):
            await client.send(topic, name.encode(), {"TAGS": name})
        fields = client.named(pull_fields(topic, group))
        del fields["subscription"], fields["expressionType"]
        fields["sysFlag"] = 0
        fields["subVersion"] = wanted["subVersion"]

        async def is_in_its_queue() -> bool:
            return (await client.ask(RequestCode.PULL_MESSAGE, fields)).code == ResponseCode.SUCCESS

        # A broker adds messages to their queue some time after their send.
        await wait_until(is_in_its_queue, "the wanted message")
        reply = await client.ask(RequestCode.PULL_MESSAGE, fields)
        assert reply.code == ResponseCode.SUCCESS, described(reply)
        assert [message.body for message in messages.decode_messages(reply.body)] == [b"wanted"]
        # A group without members has no subscription: the broker's refusal is returned.
        stranger = await client.ask(RequestCode.PULL_MESSAGE, {**fields, "consumerGroup": unique("group")})
        assert stranger.code in {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
        assert stranger.remark


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@covers(RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET)
async def test_committed_offsets_are_shared_by_replicas(cluster: Cluster, gantry: Gantry, replica: Gantry) -> None:
    topic, group = await create_topic(cluster.broker, "offset"), unique("group")
    async with Client(gantry.address) as client, Client(replica.address) as other:
        await client.heartbeat({group: [topic]})
        for number in range(5):
            await client.send(topic, b"%d" % number)
        queue = queue_fields(topic, consumerGroup=group)
        none = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**queue, "setZeroIfNotFound": False})
        assert none.code == ResponseCode.QUERY_NOT_FOUND
        # Oneway, as clients mostly send it.
        client.send_oneway(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 3})

        async def kept() -> bool:
            return (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, queue)).fields.get("offset") == "3"

        await wait_until(kept, "the offset being kept")
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 5})
        for asking in (client, other):
            assert (await asking.get(RequestCode.QUERY_CONSUMER_OFFSET, queue)).fields["offset"] == "5"


@covers(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
async def test_offsets_of_a_queue_are_found_by_bound_and_by_time(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "times")
    async with Client(gantry.address) as client:
        for number in range(3):
            await client.send(topic, b"%d" % number)
            await anyio.sleep(0.02)
        stored = [message.store_timestamp for message in await client.pull_all(3, topic, unique("group"))]
        queue = queue_fields(topic)
        assert (await client.get(RequestCode.GET_MIN_OFFSET, queue)).fields["offset"] == "0"
        assert (await client.get(RequestCode.GET_MAX_OFFSET, queue)).fields["offset"] == "3"
        earliest = await client.get(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
        assert earliest.fields["timestamp"] == str(stored[0])

        async def search(timestamp: int, boundary: str | None) -> str:
            fields = {**queue, "timestamp": timestamp, "boundaryType": boundary}
            return (await client.get(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)).fields["offset"]

        assert await search(stored[1], None) == "1"
        assert await search(stored[1], "LOWER") == "1"
        assert await search(stored[1] - 1, "LOWER") == "1"
        assert await search(stored[1] - 1, "UPPER") == "0"
        assert await search(stored[2] + 1000, "LOWER") == "3"
        assert await search(0, "LOWER") == "0"

"""ReceiveService and settling, before a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.backends import Backend
from tests.cluster.client import Client, create_topic, queue_fields, wait_until
from tests.cluster.grpc.kit import Consumer, Replica, bodies, codes, create_group, handle
from tests.cluster.servers import Cluster

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER,
        Backend.SOCKET,
        reason="the service runs in the test's process, so that an embedded broker is reached over its socket",
    ),
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]


@pytest.fixture
async def orderly(cluster: Cluster, service: Replica) -> AsyncIterator[Consumer]:
    """A consumer of a FIFO group."""
    topic = await create_topic(cluster.broker, "grpc", queues=2, kind="FIFO")
    group = await create_group(cluster, consumeMessageOrderly=True)
    async with Consumer(service.address, group, topic) as one:
        await one.receive(wait=0.1)
        yield one


async def _dead(cluster: Cluster, group: str) -> list[bytes]:
    """The group's dead letters, once there are any."""
    topic = f"%DLQ%{group}"
    async with Client(cluster.broker) as client:

        async def there() -> bool:
            reply = await client.ask(RequestCode.GET_MAX_OFFSET, queue_fields(topic))
            return reply.code == ResponseCode.SUCCESS and reply.fields["offset"] != "0"

        await wait_until(there, "the dead letter")
        return [message.body for message in await client.pull(topic, "group-of-the-dead")]


async def test_what_is_acknowledged_does_not_come_again(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1", b"2", b"3")
    messages = await consumer.all(4, invisible=5)
    assert bodies(messages) == [b"0", b"1", b"2", b"3"]
    assert codes(await consumer.ack(messages[0])) == [Code.OK, Code.OK]
    # These three in a batch.
    answer = await consumer.ack(*messages[1:])
    assert codes(answer) == [Code.OK] * 4
    assert [entry.receipt_handle for entry in answer.entries] == [handle(one) for one in messages[1:]]
    assert await consumer.receive(wait=10) == []


async def test_an_expired_handle_is_refused(consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.all(1, invisible=2)
    await asyncio.sleep(4)
    assert codes(await consumer.ack(message)) == [Code.INVALID_RECEIPT_HANDLE] * 2
    assert (await consumer.change(message, 10)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await consumer.forward(message)).status.code == Code.INVALID_RECEIPT_HANDLE
    [again] = await consumer.all(1)
    assert again.body == b"0"
    assert again.system_properties.delivery_attempt == 2
    assert codes(await consumer.ack(again)) == [Code.OK] * 2


async def test_each_entry_has_a_status_of_its_own(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1", b"2")
    messages = await consumer.all(3, invisible=5)
    fields = handle(messages[0]).split(" ")
    elsewhere = " ".join([*fields[:6], "7", *fields[7:]])
    beyond = " ".join([*fields[:7], str(int(fields[7]) + 1_000_000), fields[8]])
    answer = await consumer.ack(messages[0], "nonsense", messages[1], elsewhere, beyond, messages[2])
    bad = Code.INVALID_RECEIPT_HANDLE
    assert codes(answer) == [Code.MULTIPLE_RESULTS, Code.OK, bad, Code.OK, bad, bad, Code.OK]
    assert await consumer.receive(wait=10) == []


async def test_a_changed_message_comes_when_it_was_said_to(consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.all(1, invisible=60)
    answer = await consumer.change(message, 4)
    assert answer.status.code == Code.OK
    begin = time.monotonic()
    [again] = await consumer.all(1, invisible=60)
    assert 2 < time.monotonic() - begin < 30
    answer = await consumer.change(again, 0)
    assert answer.status.code == Code.OK
    begin = time.monotonic()
    [third] = await consumer.all(1, invisible=60)
    assert time.monotonic() - begin < 30
    answer = await consumer.change(third, 3)
    assert codes(await consumer.ack(answer.receipt_handle)) == [Code.OK] * 2
    assert await consumer.receive(wait=7) == []


async def test_a_message_can_be_put_in_the_dead_letter_queue(cluster: Cluster, consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.all(1, invisible=5)
    assert (await consumer.forward(message)).status.code == Code.OK
    assert await _dead(cluster, consumer.group.name) == [b"0"]
    assert await consumer.receive(wait=9) == []


async def test_a_message_that_failed_too_often_is_put_in_the_dead_letter_queue(
    cluster: Cluster, service: Replica
) -> None:
    topic, group = await create_topic(cluster.broker, "grpc"), await create_group(cluster, retryMaxTimes=1)
    async with Consumer(service.address, group, topic) as consumer:
        await consumer.receive(wait=0.1)
        await consumer.send(b"0")
        for attempt in (1, 2):
            [message] = await consumer.all(1, invisible=60)
            assert message.system_properties.delivery_attempt == attempt
            await consumer.change(message, 0)
        responses = await consumer.responses(wait=8)
        assert [response.status.code for response in responses] == [Code.MESSAGE_NOT_FOUND]
        assert await _dead(cluster, group) == [b"0"]
        assert await consumer.receive(wait=2) == []


async def test_messages_of_a_fifo_group_come_one_after_the_other(orderly: Consumer) -> None:
    await orderly.send(*(b"%d" % number for number in range(5)), message_group="one")
    await orderly.stored(5, queues=2)
    first = await orderly.all(1, invisible=20, batch_size=2)
    assert bodies(first) == [b"0", b"1"]
    assert await orderly.receive(wait=0.5) == []
    assert codes(await orderly.ack(first[0])) == [Code.OK] * 2
    assert codes(await orderly.ack(first[1], "nonsense")) == [
        Code.MULTIPLE_RESULTS,
        Code.OK,
        Code.INVALID_RECEIPT_HANDLE,
    ]
    second = await orderly.all(1, invisible=60, batch_size=2)
    assert bodies(second) == [b"2", b"3"]
    # Not acknowledged: so they come again, before those after them.
    for message in second:
        assert (await orderly.change(message, 1)).status.code == Code.OK
    third = await orderly.all(2, invisible=60)
    assert bodies(third) == [b"2", b"3", b"4"]
    assert [one.system_properties.delivery_attempt for one in third] == [2, 2, 1]
    assert codes(await orderly.ack(*third)) == [Code.OK] * 4
    assert (await orderly.change(third[0], 5)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert await orderly.receive(wait=1) == []


async def test_a_push_consumer_of_a_fifo_group_receives_by_queue(orderly: Consumer) -> None:
    await orderly.send(b"0", message_group="one")
    [message] = await orderly.all(1, auto_renew=True)
    queue = message.system_properties.queue_id
    assert codes(await orderly.ack(message)) == [Code.OK] * 2
    await orderly.send(b"1", message_group="one")
    assert await orderly.receive(queue=1 - queue, wait=1, auto_renew=True) == []
    [message] = await orderly.receive(queue=queue, wait=1, auto_renew=True)
    assert codes(await orderly.ack(message)) == [Code.OK] * 2


async def test_an_attempt_that_broke_is_repeated_at_once(orderly: Consumer) -> None:
    await orderly.send(b"0", message_group="one")
    first = await orderly.all(1, invisible=60, attempt_id="attempt")
    assert await orderly.receive(wait=1, attempt_id="other") == []
    again = await orderly.receive(wait=1, invisible=60, attempt_id="attempt")
    assert bodies(again) == bodies(first)
    assert codes(await orderly.ack(*again)) == [Code.OK] * 2


@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [
        (d.TAG, "a || b", [b"0", b"1"]),
        (d.TAG, "c", [b"2"]),
        (d.TAG, "*", [b"0", b"1", b"2"]),
        (d.SQL, "TAGS = 'b'", [b"1"]),
    ],
)
async def test_a_filter_lets_through_what_matches(
    consumer: Consumer, kind: d.FilterType, expression: str, wanted: list[bytes]
) -> None:
    wanted_only = d.FilterExpression(type=kind, expression=expression)
    await consumer.receive(wait=0.1, filter_expression=wanted_only)
    for number, tag in enumerate("abc"):
        await consumer.send(b"%d" % number, tag=tag)
    messages = await consumer.all(len(wanted), filter_expression=wanted_only)
    assert bodies(messages) == wanted
    assert await consumer.receive(wait=0.5, filter_expression=wanted_only) == []


async def test_a_filter_that_no_broker_can_read_is_refused(consumer: Consumer) -> None:
    wrong = d.FilterExpression(type=d.SQL, expression="TAGS = = 'b'")
    responses = await consumer.responses(wait=0.5, filter_expression=wrong)
    assert [response.status.code for response in responses] == [Code.ILLEGAL_FILTER_EXPRESSION]


async def test_what_was_popped_for_a_cancelled_receive_comes_again(consumer: Consumer) -> None:
    call = consumer.stream(wait=10, invisible=60)
    waiting = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.5)
    call.cancel()
    await asyncio.wait((waiting,))
    await consumer.send(b"0")
    [message] = await consumer.all(1, wait=5)
    assert message.body == b"0"


async def test_lite_topics_are_for_newer_brokers(consumer: Consumer) -> None:
    request = pb.SyncLiteSubscriptionRequest(
        action=d.COMPLETE_ADD, topic=consumer.topic, group=consumer.group, lite_topic_set=["one"]
    )
    assert (await consumer.call("SyncLiteSubscription", request)).status.code == Code.NOT_IMPLEMENTED


async def test_what_a_stream_did_not_deliver_comes_again(consumer: Consumer) -> None:
    """The client reads one message of the many that wait for it in flow control, and is gone."""
    await consumer.send(*(b"%05d" % number * 1_400 for number in range(30)))
    await asyncio.sleep(0.5)
    stream = consumer.stream(invisible=60)
    assert (await stream.read()).status.code == Code.OK
    first = (await stream.read()).message
    stream.cancel()
    found = await consumer.all(30, wait=2, invisible=60)
    assert first.body in bodies(found)
    assert len(found) == 30

"""Receives and settlements through the port of a replica."""

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
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, bodies, codes, handle
from tests.cluster.grpc.replica import Service, create_group
from tests.cluster.servers import Cluster

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.IN_PROCESS, reason="the embedded broker is tested over its port too"),
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]


@pytest.fixture
async def orderly(cluster: Cluster, service: Service) -> AsyncIterator[Consumer]:
    """Return a consumer of a FIFO group, which has received once."""
    topic = await create_topic(cluster.broker, "grpc", queues=2, kind="FIFO")
    group = await create_group(cluster, consumeMessageOrderly=True)
    async with Consumer(service.address, group, topic) as fifo_consumer:
        await fifo_consumer.receive(wait=0.1)
        yield fifo_consumer


async def _dead_letters(cluster: Cluster, group: str) -> list[bytes]:
    """Wait for dead letters of a group, and return their bodies."""
    topic = f"%DLQ%{group}"
    async with Client(cluster.broker) as client:

        async def has_dead_letter() -> bool:
            reply = await client.ask(RequestCode.GET_MAX_OFFSET, queue_fields(topic))
            return reply.code == ResponseCode.SUCCESS and reply.fields["offset"] != "0"

        await wait_until(has_dead_letter, "the dead letter")
        return [message.body for message in await client.pull(topic, "dead-letter-group")]


@covers("ReceiveMessage")
async def test_empty_receive_lasts_at_least_as_long_as_asked_for(consumer: Consumer) -> None:
    for _ in range(5):
        started = time.monotonic()
        assert await consumer.receive(wait=0.3) == []
        assert time.monotonic() - started >= 0.3


@covers("ReceiveMessage", "AckMessage")
async def test_acknowledged_messages_are_not_redelivered(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1", b"2", b"3")
    messages = await consumer.receive_all(4, invisible=5)
    assert bodies(messages) == [b"0", b"1", b"2", b"3"]
    assert codes(await consumer.ack(messages[0])) == [Code.OK, Code.OK]
    # The broker gets these three in a batch.
    answer = await consumer.ack(*messages[1:])
    assert codes(answer) == [Code.OK] * 4
    assert [entry.receipt_handle for entry in answer.entries] == [handle(message) for message in messages[1:]]
    assert await consumer.receive(wait=10) == []


async def test_expired_handle_is_rejected(consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.receive_all(1, invisible=2)
    await asyncio.sleep(4)
    assert codes(await consumer.ack(message)) == [Code.INVALID_RECEIPT_HANDLE] * 2
    assert (await consumer.change(message, 10)).status.code == Code.INVALID_RECEIPT_HANDLE
    [redelivered] = await consumer.receive_all(1)
    assert redelivered.body == b"0"
    assert redelivered.system_properties.delivery_attempt == 2
    assert codes(await consumer.ack(redelivered)) == [Code.OK] * 2


async def test_each_entry_has_its_status(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1", b"2")
    messages = await consumer.receive_all(3, invisible=5)
    fields = handle(messages[0]).split(" ")
    other_queue = " ".join([*fields[:6], "7", *fields[7:]])
    beyond_end = " ".join([*fields[:7], str(int(fields[7]) + 1_000_000), fields[8]])
    answer = await consumer.ack(messages[0], "nonsense", messages[1], other_queue, beyond_end, messages[2])
    invalid = Code.INVALID_RECEIPT_HANDLE
    assert codes(answer) == [Code.MULTIPLE_RESULTS, Code.OK, invalid, Code.OK, invalid, invalid, Code.OK]
    assert await consumer.receive(wait=10) == []


@covers("ChangeInvisibleDuration")
async def test_message_is_redelivered_after_the_changed_invisible_duration(consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.receive_all(1, invisible=60)
    begin = time.monotonic()
    answer = await consumer.change(message, 4)
    assert answer.status.code == Code.OK
    [redelivered] = await consumer.receive_all(1, invisible=60)
    assert 3 < time.monotonic() - begin < 30
    answer = await consumer.change(redelivered, 0)
    assert answer.status.code == Code.OK
    begin = time.monotonic()
    [third] = await consumer.receive_all(1, invisible=60)
    assert time.monotonic() - begin < 30
    answer = await consumer.change(third, 6)
    assert codes(await consumer.ack(answer.receipt_handle)) == [Code.OK] * 2
    assert await consumer.receive(wait=10) == []


@covers("ForwardMessageToDeadLetterQueue")
async def test_forwarded_message_is_in_the_dead_letter_queue(cluster: Cluster, consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.receive_all(1, invisible=5)
    assert (await consumer.forward(message)).status.code == Code.OK
    assert await _dead_letters(cluster, consumer.group.name) == [b"0"]
    assert await consumer.receive(wait=9) == []


async def test_message_of_an_expired_handle_is_forwarded(cluster: Cluster, consumer: Consumer) -> None:
    await consumer.send(b"0")
    [message] = await consumer.receive_all(1, invisible=2)
    await asyncio.sleep(4)
    assert (await consumer.forward(message)).status.code == Code.OK
    assert await _dead_letters(cluster, consumer.group.name) == [b"0"]


async def test_message_without_attempts_left_is_in_the_dead_letter_queue(cluster: Cluster, service: Service) -> None:
    topic, group = await create_topic(cluster.broker, "grpc"), await create_group(cluster, retryMaxTimes=1)
    async with Consumer(service.address, group, topic) as consumer:
        await consumer.receive(wait=0.1)
        await consumer.send(b"0")
        for attempt in (1, 2):
            [message] = await consumer.receive_all(1, invisible=60)
            assert message.system_properties.delivery_attempt == attempt
            await consumer.change(message, 0)
        responses = await consumer.responses(wait=8)
        assert [response.status.code for response in responses] == [Code.MESSAGE_NOT_FOUND]
        assert await _dead_letters(cluster, group) == [b"0"]
        assert await consumer.receive(wait=2) == []


async def test_messages_of_a_fifo_group_are_delivered_in_order(orderly: Consumer) -> None:
    await orderly.send(*(b"%d" % number for number in range(5)), message_group="one")
    await orderly.wait_until_stored(5, queues=2)
    first = await orderly.receive_all(1, invisible=20, batch_size=2)
    assert bodies(first) == [b"0", b"1"]
    assert await orderly.receive(wait=0.5) == []
    assert codes(await orderly.ack(first[0])) == [Code.OK] * 2
    assert codes(await orderly.ack(first[1], "nonsense")) == [
        Code.MULTIPLE_RESULTS,
        Code.OK,
        Code.INVALID_RECEIPT_HANDLE,
    ]
    second = await orderly.receive_all(1, invisible=60, batch_size=2)
    assert bodies(second) == [b"2", b"3"]
    # Not acknowledged, so they are redelivered before the following messages.
    for message in second:
        assert (await orderly.change(message, 1)).status.code == Code.OK
    third = await orderly.receive_all(2, invisible=60)
    assert bodies(third) == [b"2", b"3", b"4"]
    assert [message.system_properties.delivery_attempt for message in third] == [2, 2, 1]
    assert codes(await orderly.ack(*third)) == [Code.OK] * 4
    assert (await orderly.change(third[0], 5)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert await orderly.receive(wait=1) == []


async def test_push_consumer_of_a_fifo_group_receives_by_queue(orderly: Consumer) -> None:
    await orderly.send(b"0", message_group="one")
    [message] = await orderly.receive_all(1, auto_renew=True)
    queue = message.system_properties.queue_id
    assert codes(await orderly.ack(message)) == [Code.OK] * 2
    await orderly.send(b"1", message_group="one")
    assert await orderly.receive(queue=1 - queue, wait=1, auto_renew=True) == []
    [message] = await orderly.receive_all(1, queue=queue, wait=1, auto_renew=True)
    assert codes(await orderly.ack(message)) == [Code.OK] * 2


async def test_receive_with_the_same_attempt_id_gets_the_messages_again(orderly: Consumer) -> None:
    await orderly.send(b"0", message_group="one")
    first = await orderly.receive_all(1, invisible=60, attempt_id="attempt")
    assert await orderly.receive(wait=1, attempt_id="other") == []
    redelivered = await orderly.receive(wait=1, invisible=60, attempt_id="attempt")
    assert bodies(redelivered) == bodies(first)
    assert codes(await orderly.ack(*redelivered)) == [Code.OK] * 2


@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        (d.TAG, "a || b", [b"0", b"1"]),
        (d.TAG, "c", [b"2"]),
        (d.TAG, "*", [b"0", b"1", b"2"]),
        (d.SQL, "TAGS = 'b'", [b"1"]),
    ],
)
async def test_only_messages_that_match_the_filter_are_delivered(
    consumer: Consumer, kind: d.FilterType, expression: str, expected: list[bytes]
) -> None:
    filter_expression = d.FilterExpression(type=kind, expression=expression)
    await consumer.receive(wait=0.1, filter_expression=filter_expression)
    for number, tag in enumerate("abc"):
        await consumer.send(b"%d" % number, tag=tag)
    messages = await consumer.receive_all(len(expected), filter_expression=filter_expression)
    assert bodies(messages) == expected
    assert await consumer.receive(wait=0.5, filter_expression=filter_expression) == []


async def test_filter_that_brokers_cannot_parse_is_rejected(consumer: Consumer) -> None:
    wrong = d.FilterExpression(type=d.SQL, expression="TAGS = = 'b'")
    responses = await consumer.responses(wait=0.5, filter_expression=wrong)
    assert [response.status.code for response in responses] == [Code.ILLEGAL_FILTER_EXPRESSION]


async def test_message_sent_after_a_cancelled_receive_is_delivered(consumer: Consumer) -> None:
    call = consumer.stream(wait=10, invisible=60)
    waiting = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.5)
    call.cancel()
    await asyncio.wait((waiting,))
    await consumer.send(b"0")
    [message] = await consumer.receive_all(1, wait=5)
    assert message.body == b"0"


@covers("SyncLiteSubscription")
async def test_lite_subscription_of_a_regular_group_is_refused(consumer: Consumer) -> None:
    """Older brokers have regular groups only."""
    request = pb.SyncLiteSubscriptionRequest(
        action=d.COMPLETE_ADD, topic=consumer.topic, group=consumer.group, lite_topic_set=["one"]
    )
    assert (await consumer.call("SyncLiteSubscription", request)).status.code == Code.ILLEGAL_TOPIC


async def test_undelivered_messages_of_a_broken_stream_are_redelivered(consumer: Consumer) -> None:
    """The client disconnects after one of many messages, while the others wait for flow control."""
    await consumer.send(*(b"%05d" % number * 1_400 for number in range(30)))
    await asyncio.sleep(0.5)
    stream = consumer.stream(invisible=60)
    assert (await stream.read()).status.code == Code.OK
    first = (await stream.read()).message
    stream.cancel()
    messages = await consumer.receive_all(30, wait=2, invisible=60)
    assert first.body in bodies(messages)
    assert len(messages) == 30

"""Renewal on one replica and between replicas, against a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster.backends import Backend
from tests.cluster.client import create_topic, unique
from tests.cluster.grpc.consumer import Consumer, bodies, codes
from tests.cluster.grpc.replica import Replica
from tests.cluster.servers import Cluster, eventually

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER,
        Backend.SOCKET,
        reason="the service runs in the test's process, so that an embedded broker is reached over its socket",
    ),
    pytest.mark.anyio,
    pytest.mark.timeout(240, func_only=True),
]

_OPTIONS: dict[str, Any] = {"min_polling": 0.1, "min_invisible": 1.0, "renewal": 4.0}


@pytest.fixture
async def replica(cluster: Cluster) -> AsyncIterator[Replica]:
    async with Replica(cluster.namesrv, unique("a"), **_OPTIONS) as started_replica:
        yield started_replica


@pytest.fixture
async def other(cluster: Cluster) -> AsyncIterator[Replica]:
    async with Replica(cluster.namesrv, unique("b"), **_OPTIONS) as started_replica:
        yield started_replica


async def _consumer(cluster: Cluster, replica: Replica, *model: Consumer) -> Consumer:
    if model:
        return Consumer(replica.address, model[0].group.name, model[0].topic.name)
    consumer = Consumer(replica.address, unique("group"), await create_topic(cluster.broker, "grpc"))
    await consumer.receive(wait=0.1)
    return consumer


async def test_message_is_renewed_until_it_is_acknowledged(cluster: Cluster, replica: Replica) -> None:
    async with await _consumer(cluster, replica) as consumer:
        await consumer.send(b"0")
        [message] = await consumer.receive_all(1, auto_renew=True)
        assert await consumer.receive(wait=12) == []
        assert len(replica.renewal) == 1
        assert codes(await consumer.ack(message)) == [Code.OK] * 2
        assert len(replica.renewal) == 0
        assert await consumer.receive(wait=10) == []


async def test_another_replica_settles_renewed_messages(cluster: Cluster, replica: Replica, other: Replica) -> None:
    async with (
        await _consumer(cluster, replica) as consumer,
        await _consumer(cluster, other, consumer) as other_consumer,
    ):
        # The topic of the renewal events is created first, and read from then on.
        await asyncio.sleep(6)
        await consumer.send(b"0", b"1", b"2")
        messages = await consumer.receive_all(3, auto_renew=True)
        # Not renewed so far.
        assert codes(await other_consumer.ack(messages[0])) == [Code.OK] * 2
        await asyncio.sleep(6)
        assert codes(await other_consumer.ack(messages[1])) == [Code.OK] * 2
        await asyncio.sleep(5)
        changed = await other_consumer.change(messages[2], 3)
        assert changed.status.code == Code.OK
        await eventually(lambda: len(replica.renewal) == 0)
        assert bodies(await consumer.receive_all(1, invisible=60)) == [b"2"]
        assert await consumer.receive(wait=10) == []


async def test_messages_of_a_terminated_client_are_redelivered(cluster: Cluster) -> None:
    # Long enough that the message is redelivered only if it is returned.
    async with (
        Replica(cluster.namesrv, unique("a"), **_OPTIONS | {"renewal": 300.0}) as replica,
        await _consumer(cluster, replica) as consumer,
        await _consumer(cluster, replica, consumer) as second,
    ):
        await consumer.send(b"0")
        await consumer.receive_all(1, auto_renew=True)
        answer = await consumer.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=consumer.group))
        assert answer.status.code == Code.OK
        assert bodies(await second.receive_all(1)) == [b"0"]
        assert len(replica.renewal) == 0


async def test_messages_of_a_crashed_replica_are_redelivered(
    cluster: Cluster, replica: Replica, other: Replica
) -> None:
    async with (
        await _consumer(cluster, replica) as consumer,
        await _consumer(cluster, other, consumer) as other_consumer,
    ):
        await consumer.send(b"0")
        await consumer.receive_all(1, auto_renew=True)
        await asyncio.sleep(6)
        replica.crash()
        assert bodies(await other_consumer.receive_all(1)) == [b"0"]

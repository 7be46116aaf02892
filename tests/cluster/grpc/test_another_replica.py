"""Work that clients of a killed replica finish at another one."""

import asyncio
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster.backends import Backend
from tests.cluster.client import create_topic, unique
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, bodies, codes
from tests.cluster.grpc.replica import Product, Service
from tests.cluster.servers import Cluster, Gantry, serving

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER, Backend.SOCKET, reason="two replicas share an embedded broker over its socket only"
    ),
    pytest.mark.anyio,
    pytest.mark.timeout(240, func_only=True),
]

# Seconds between the death of the first replica and the requests at the second.
_LATER = 32.0


@covers("EndTransaction", "AckMessage", "ChangeInvisibleDuration")
async def test_transactions_and_deliveries_of_a_killed_replica_end_at_another_one(
    cluster: Cluster, service: Service, transport: str, tmp_path: Path
) -> None:
    """Guards against replicas that know transactions and receipt handles from memory alone."""
    topic, transactions = [await create_topic(cluster.broker, "grpc", kind=kind) for kind in ("NORMAL", "TRANSACTION")]
    group = unique("group")
    async with (
        serving(Gantry(tmp_path, cluster.namesrv, Product(tmp_path, transport).config)) as gantry,
        Consumer(gantry.address, group, topic) as receiver,
        Consumer(gantry.address, group, transactions) as producer,
    ):
        for client in (receiver, producer):
            await client.receive(wait=0.1)
        await receiver.send(b"acked", b"changed")
        messages = await receiver.receive_all(2, invisible=120)
        halves = [await producer.send_one(body, message_type=d.TRANSACTION) for body in (b"kept", b"dropped")]
        gantry.kill()
    await asyncio.sleep(_LATER)
    async with (
        Consumer(service.address, group, topic) as receiver,
        Consumer(service.address, group, transactions) as producer,
    ):
        for half, resolution in zip(halves, (d.COMMIT, d.ROLLBACK), strict=True):
            request = pb.EndTransactionRequest(
                topic=producer.topic,
                message_id=half.message_id,
                transaction_id=half.transaction_id,
                resolution=resolution,
                source=d.SOURCE_CLIENT,
            )
            assert (await producer.call("EndTransaction", request)).status.code == Code.OK
        assert codes(await receiver.ack(messages[0])) == [Code.OK] * 2
        assert (await receiver.change(messages[1], 1)).status.code == Code.OK
        assert bodies(await receiver.receive_all(1)) == [messages[1].body]
        assert bodies(await producer.receive_all(1)) == [b"kept"]
        assert await producer.receive(wait=4) == []


@covers("EndTransaction")
async def test_transactions_end_at_another_replica_as_soon_as_they_are_sent(
    cluster: Cluster, service: Service, transport: str, tmp_path: Path
) -> None:
    """A balancer of calls sends the rpcs of one client to several replicas, and brokers index messages later."""
    topic = await create_topic(cluster.broker, "grpc", kind="TRANSACTION")
    group = unique("group")
    numbers = [str(number).encode() for number in range(20)]
    async with (
        serving(Gantry(tmp_path, cluster.namesrv, Product(tmp_path, transport).config)) as gantry,
        Consumer(gantry.address, group, topic) as sender,
        Consumer(service.address, group, topic) as client,
    ):
        await client.receive(wait=0.1)
        for number in numbers:
            half = await sender.send_one(number, message_type=d.TRANSACTION)
            request = pb.EndTransactionRequest(
                topic=client.topic,
                message_id=half.message_id,
                transaction_id=half.transaction_id,
                resolution=d.COMMIT if int(number) % 2 else d.ROLLBACK,
                source=d.SOURCE_CLIENT,
            )
            assert (await client.call("EndTransaction", request)).status.code == Code.OK
        assert sorted(bodies(await client.receive_all(10))) == sorted(numbers[1::2])
        assert await client.receive(wait=4) == []

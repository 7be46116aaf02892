"""Renewal on one replica and between replicas, which are processes of the product."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster.backends import Backend
from tests.cluster.client import create_topic, unique, wait_until
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, bodies, codes
from tests.cluster.grpc.replica import RENEWAL, Product
from tests.cluster.servers import Cluster, Gantry, serving

pytestmark = [
    pytest.mark.backends(
        Backend.CLUSTER, Backend.SOCKET, reason="two replicas share an embedded broker over its socket only"
    ),
    # Renewal is above the transport.
    pytest.mark.parametrize("transport", ["inprocess"], indirect=True, scope="session"),
    pytest.mark.anyio,
    pytest.mark.timeout(240, func_only=True),
]

# Seconds after which a message that is not renewed has been delivered again.
_EXPIRED = RENEWAL + 6
# Seconds after which another replica has read the event of a renewal.
_KNOWN = 2.0


@pytest.fixture
async def replicas(cluster: Cluster, transport: str, tmp_path: Path) -> AsyncIterator[list[tuple[Gantry, Product]]]:
    """Two replicas."""
    found: list[tuple[Gantry, Product]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        product = Product(tmp_path / name, transport)
        found.append((Gantry(product.directory, cluster.namesrv, f'replica = "{name}"\n{product.config}'), product))
    async with serving(found[0][0]), serving(found[1][0]):
        yield found


async def _consumer(cluster: Cluster, address: str) -> Consumer:
    consumer = Consumer(address, unique("group"), await create_topic(cluster.broker, "grpc"))
    await consumer.receive(wait=0.1)
    return consumer


def _same(address: str, model: Consumer) -> Consumer:
    """Return another member of the group, at another replica."""
    return Consumer(address, model.group.name, model.topic.name)


async def _wait_until_renewed(product: Product, count: int) -> None:
    async def renewed() -> bool:
        return await product.metric("gantry_renewals_total", outcome="renewed") >= count

    await wait_until(renewed, f"{count} renewals")


async def test_message_is_renewed_until_it_is_acknowledged(
    cluster: Cluster, replicas: list[tuple[Gantry, Product]]
) -> None:
    gantry, product = replicas[0]
    async with await _consumer(cluster, gantry.address) as consumer:
        await consumer.send(b"0")
        [message] = await consumer.receive_all(1, auto_renew=True)
        assert await consumer.receive(wait=_EXPIRED) == []
        assert await product.metric("gantry_grpc_held") == 1
        assert codes(await consumer.ack(message)) == [Code.OK] * 2
        assert await product.metric("gantry_grpc_held") == 0
        assert await consumer.receive(wait=_EXPIRED) == []


async def test_another_replica_settles_renewed_messages(
    cluster: Cluster, replicas: list[tuple[Gantry, Product]]
) -> None:
    (gantry, product), (other, _) = replicas
    async with await _consumer(cluster, gantry.address) as consumer, _same(other.address, consumer) as other_consumer:
        # The topic of the renewal events is created first, and read from then on.
        await asyncio.sleep(6)
        await consumer.send(b"0", b"1", b"2")
        messages = await consumer.receive_all(3, auto_renew=True)
        # Not renewed so far.
        assert codes(await other_consumer.ack(messages[0])) == [Code.OK] * 2
        await _wait_until_renewed(product, 2)

        # The other replica reads the event of the renewal: until then it settles the former delivery without an error.
        await asyncio.sleep(_KNOWN)

        async def acknowledged() -> bool:
            return codes(await other_consumer.ack(messages[1])) == [Code.OK] * 2

        await wait_until(acknowledged, "the acknowledgement of a renewed message")
        await _wait_until_renewed(product, 3)
        await asyncio.sleep(_KNOWN)

        async def changed() -> bool:
            return bool((await other_consumer.change(messages[2], 3)).status.code == Code.OK)

        await wait_until(changed, "the change of a renewed message")

        async def released() -> bool:
            return await product.metric("gantry_grpc_held") == 0

        await wait_until(released, "the end of the renewals")
        assert bodies(await consumer.receive_all(1, invisible=60)) == [b"2"]
        assert await consumer.receive(wait=_EXPIRED) == []


@covers("NotifyClientTermination")
async def test_messages_of_a_terminated_client_are_redelivered(
    cluster: Cluster, transport: str, tmp_path: Path
) -> None:
    # Long enough that the message is redelivered only if it is returned.
    product = Product(tmp_path, transport, renewal=300)
    async with (
        serving(Gantry(tmp_path, cluster.namesrv, product.config)) as gantry,
        await _consumer(cluster, gantry.address) as consumer,
        _same(gantry.address, consumer) as second,
    ):
        await consumer.send(b"0")
        await consumer.receive_all(1, auto_renew=True)
        answer = await consumer.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=consumer.group))
        assert answer.status.code == Code.OK
        assert bodies(await second.receive_all(1)) == [b"0"]
        assert await product.metric("gantry_grpc_held") == 0


async def test_messages_of_a_crashed_replica_are_redelivered(
    cluster: Cluster, replicas: list[tuple[Gantry, Product]]
) -> None:
    (gantry, product), (other, _) = replicas
    async with await _consumer(cluster, gantry.address) as consumer, _same(other.address, consumer) as other_consumer:
        await consumer.send(b"0")
        await consumer.receive_all(1, auto_renew=True)
        await _wait_until_renewed(product, 1)
        gantry.kill()
        assert bodies(await other_consumer.receive_all(1)) == [b"0"]

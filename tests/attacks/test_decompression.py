"""Small stored bodies that are large when they are decompressed for gRPC clients, with a good client beside them."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.compression import CompressionType
from remoting.messages import SysFlag
from tests.attacks import raw_client
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import memory_released, observed
from tests.benchmark.processes import rss_mb
from tests.cluster.client import Client, unique, wait_until
from tests.cluster.grpc.consumer import Consumer, seconds
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_MIB = 1 << 20
# A worker remembers for this time that a topic did not exist.
_UNKNOWN_SECONDS = 1.1
_INNER_BATCH = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
# Bytes of a request in its first frame of two.
_HALF = 8 * 1024
_ENDPOINTS = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host="127.0.0.1", port=80)])


def _answered(client: raw_client.Client) -> bool:
    return 1 in client.responses and client.responses[1].finished


async def _store(replica: Gantry, topic: str, body: bytes, sys_flag: int, count: int) -> str:
    """Send messages to queue 0 of the topic; return the broker's name."""
    async with Client(replica.address) as client:
        fields = {"a": "attacker", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": str(sys_flag), "h": "0"}
        fields |= {"g": str(time.time_ns() // 1_000_000), "i": "", "j": "0", "k": "false"}
        for _ in range(count):
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.SUCCESS
    request = pb.QueryRouteRequest(topic=d.Resource(name=topic), endpoints=_ENDPOINTS)
    brokers: list[str] = []

    async def routed() -> bool:
        async with Consumer(replica.address, "any", topic) as consumer:
            brokers[:] = [queue.broker.name for queue in (await consumer.call("QueryRoute", request)).message_queues]
        return bool(brokers)

    await wait_until(routed, "the new topic's route")
    # The other workers too.
    await asyncio.sleep(_UNKNOWN_SECONDS)
    return str(brokers[0])


async def test_compressed_requests_of_many_connections_are_decompressed_one_by_one(replica: Gantry) -> None:
    """Requests of 16 KiB that decompress to 16 MiB each, on 30 connections at once."""
    request = raw_client.message(bytes(16 * _MIB), compressed=True)
    with ExitStack() as stack:
        clients = [stack.enter_context(raw_client.Client(replica.port)) for _ in range(30)]
        async with observed(replica.address, replica.pid, unique("good")) as observation:
            for client in clients:
                # The client acknowledges the server's settings, for which there is a timeout.
                assert await asyncio.to_thread(client.until, lambda client: client.settings)
            for client in clients:
                head = client.headers(1, client.request(_SEND, ("grpc-encoding", "gzip")))
                client.send(head + raw_client.data(1, request[:_HALF]) + raw_client.data(1, request[_HALF:], end=True))
            # All at once, since each acknowledges the server's pings.
            run = partial(asyncio.get_running_loop().run_in_executor, stack.enter_context(ThreadPoolExecutor(30)))
            assert all(await asyncio.gather(*(run(client.until, _answered, 200.0) for client in clients)))
    observation.check(growth=96, stall=0.4)


@pytest.mark.complete
@pytest.mark.parametrize(("size", "delivered"), [(15, False), (3, True)], ids=["over the maximum body", "within it"])
async def test_a_batch_of_compressed_bodies_is_decompressed_one_by_one(
    replica: Gantry, size: int, delivered: bool
) -> None:
    """Ten messages of 3 or 15 KiB that decompress to `size` MiB each, received by four consumers at a time."""
    topic = unique("bomb")
    packed, bits = messages.compress(bytes(size * _MIB), CompressionType.ZLIB)
    await _store(replica, topic, b"first", 0, 1)
    groups = [unique("group") for _ in range(4)]

    async def receive(group: str) -> list[int]:
        async with Consumer(replica.address, group, topic) as consumer:
            return [len(message.body) for message in await consumer.receive(wait=1)]

    # New groups start at the end of the queues.
    await asyncio.gather(*map(receive, groups))
    await _store(replica, topic, packed, bits, 10)
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        before = rss_mb(replica.pid)
        sizes = [size for received in await asyncio.gather(*map(receive, groups)) for size in received]
    assert len(sizes) >= 10
    assert set(sizes) <= {size * _MIB if delivered else len(packed)}
    observation.check(growth=96)
    await memory_released(replica.pid, before + 64)


# RocketMQ's brokers refuse to store such a message.
@pytest.mark.deployments(Deployment.EMBEDDED, Deployment.WORKERS)
async def test_a_compressed_inner_batch_over_the_maximum_body_is_not_unwrapped(replica: Gantry) -> None:
    """Some 60 KiB that decompress to 64 MiB, or 3 million empty messages."""
    topic, group = unique("bomb"), unique("group")
    packed, bits = messages.compress(bytes(64 * _MIB), CompressionType.ZLIB)
    broker = await _store(replica, topic, packed, int(bits | _INNER_BATCH), 1)

    async def pull(number: int) -> list[int]:
        async with Consumer(replica.address, group, topic) as consumer:
            request = pb.PullMessageRequest(
                group=d.Resource(name=group), message_queue=consumer.queue(number, broker), offset=0, batch_size=32
            )
            request.long_polling_timeout.CopyFrom(seconds(0))
            call = consumer.stub.PullMessage(request, metadata=consumer.metadata, timeout=10)
            return [
                len(response.message.body) async for response in call if response.WhichOneof("content") == "message"
            ]

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        before = rss_mb(replica.pid)
        sizes = [size for number in range(4) for size in await pull(number)]
    assert set(sizes) <= {len(packed)}
    observation.check(growth=64)
    await memory_released(replica.pid, before + 64)

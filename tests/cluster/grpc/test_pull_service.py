"""Pulls and offsets through the port of a replica."""

import asyncio
import time
from typing import Any

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster import coverage
from tests.cluster.backends import Backend
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, seconds
from tests.cluster.grpc.replica import create_group
from tests.cluster.servers import TIMEOUT, Cluster

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.IN_PROCESS, reason="the embedded broker is tested over its port too"),
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]


async def _pull(consumer: Consumer, offset: int, wait: float = 0, deadline: float = TIMEOUT) -> list[object]:
    """Pull, and return the code, the bodies and the next offset."""
    request = pb.PullMessageRequest(
        group=consumer.group,
        message_queue=consumer.queue(0),
        offset=offset,
        batch_size=2,
        long_polling_timeout=seconds(wait),
    )
    contents: list[object] = []
    coverage.saw(consumer.address, "PullMessage")
    async for response in consumer.stub.PullMessage(request, metadata=consumer.metadata, timeout=deadline):
        match response.WhichOneof("content"):
            case "status":
                contents.append(response.status.code)
            case "message":
                contents.append(response.message.body)
            case _:
                contents.append(response.next_offset)
    return contents


@covers("PullMessage")
async def test_pull_reads_a_queue_by_offset(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1", b"2")
    await consumer.wait_until_stored(3)
    assert await _pull(consumer, 0) == [Code.OK, b"0", b"1", 2]
    assert await _pull(consumer, 2) == [Code.OK, b"2", 3]
    assert await _pull(consumer, 3) == [Code.OK, 3]
    assert (await _pull(consumer, 1_000))[0] == Code.ILLEGAL_OFFSET
    assert await _pull(consumer, -1) == [Code.ILLEGAL_OFFSET]


async def test_pull_waits_for_a_message_until_its_deadline(consumer: Consumer) -> None:
    begin = time.monotonic()
    # The broker checks only every five seconds whether a poll has timed out.
    assert await _pull(consumer, 0, wait=10, deadline=4) == [Code.OK, 0]
    assert time.monotonic() - begin > 1.5
    waiting = asyncio.ensure_future(_pull(consumer, 0, wait=10))
    await asyncio.sleep(0.5)
    await consumer.send(b"0")
    assert await waiting == [Code.OK, b"0", 1]


@covers("QueryOffset")
async def test_query_offset_returns_first_last_and_time_offsets(consumer: Consumer) -> None:
    await consumer.send(b"0", b"1")
    await consumer.wait_until_stored(2)

    async def offset(policy: d.QueryOffsetPolicy, milliseconds: int | None = None) -> tuple[int, int]:
        request = pb.QueryOffsetRequest(message_queue=consumer.queue(0), query_offset_policy=policy)
        if milliseconds is not None:
            request.timestamp.FromMilliseconds(milliseconds)
        answer = await consumer.call("QueryOffset", request)
        return answer.status.code, answer.offset

    assert await offset(d.BEGINNING) == (Code.OK, 0)
    assert await offset(d.END) == (Code.OK, 2)
    assert await offset(d.TIMESTAMP, 1) == (Code.OK, 0)
    assert (await offset(d.TIMESTAMP))[0] == Code.BAD_REQUEST


@covers("UpdateOffset", "GetOffset")
async def test_updated_offset_of_a_group_is_returned(cluster: Cluster, consumer: Consumer) -> None:
    queue, group = consumer.queue(0), d.Resource(name=await create_group(cluster))

    async def stored() -> tuple[int, int]:
        answer: Any = await consumer.call("GetOffset", pb.GetOffsetRequest(group=group, message_queue=queue))
        return answer.status.code, answer.offset

    assert await stored() == (Code.OFFSET_NOT_FOUND, 0)
    request = pb.UpdateOffsetRequest(group=group, message_queue=queue, offset=2)
    assert (await consumer.call("UpdateOffset", request)).status.code == Code.OK
    assert await stored() == (Code.OK, 2)
    request.group.name = "unknown-group"
    assert (await consumer.call("UpdateOffset", request)).status.code == Code.CONSUMER_GROUP_NOT_FOUND

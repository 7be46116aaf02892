"""Sends, recalls and transactions through the port of a replica."""

import asyncio
import time

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster.backends import Backend
from tests.cluster.client import create_topic, unique
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, bodies
from tests.cluster.grpc.replica import Service
from tests.cluster.grpc.telemetry import Telemetry
from tests.cluster.servers import Cluster

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.IN_PROCESS, reason="the embedded broker is tested over its port too"),
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]


async def _client(cluster: Cluster, service: Service, kind: str) -> Consumer:
    """Return a client of a new topic of this type, whose group has received once."""
    client = Consumer(service.address, unique("group"), await create_topic(cluster.broker, "grpc", kind=kind))
    await client.receive(wait=0.1)
    return client


async def _end(
    client: Consumer, entry: object, resolution: d.TransactionResolution, source: d.TransactionSource = d.SOURCE_CLIENT
) -> int:
    request = pb.EndTransactionRequest(
        topic=client.topic,
        message_id=entry.message_id,  # type: ignore[attr-defined]
        transaction_id=entry.transaction_id,  # type: ignore[attr-defined]
        resolution=resolution,
        source=source,
    )
    return int((await client.call("EndTransaction", request)).status.code)


@covers("SendMessage")
async def test_received_message_is_as_it_was_sent(consumer: Consumer) -> None:
    entry = await consumer.send_one(b"body", {"colour": "red"}, tag="a", keys=["k", "l"], trace_context="trace")
    [message] = await consumer.receive_all(1)
    system = message.system_properties
    # The trace context is a property too, which the official proxy does not hide.
    assert (message.body, dict(message.user_properties)) == (b"body", {"colour": "red", "TRACE_CONTEXT": "trace"})
    assert (system.tag, list(system.keys), system.trace_context) == ("a", ["k", "l"], "trace")
    assert (system.message_id, system.delivery_attempt) == (entry.message_id, 1)
    assert system.born_host


@covers("RecallMessage")
async def test_recalled_message_is_not_delivered(cluster: Cluster, service: Service) -> None:
    async with await _client(cluster, service, "DELAY") as client:
        # The recall comes before, on a busy machine too.
        due = Timestamp(seconds=int(time.time()) + 8)
        kept = await client.send_one(b"kept", delivery_timestamp=due)
        taken = await client.send_one(b"taken", delivery_timestamp=due)
        request = pb.RecallMessageRequest(topic=client.topic, recall_handle=taken.recall_handle)
        answer = await client.call("RecallMessage", request)
        assert (answer.status.code, answer.message_id) == (Code.OK, taken.message_id)
        [message] = await client.receive_all(1)
        assert (message.body, message.system_properties.message_id) == (b"kept", kept.message_id)
        assert await client.receive(wait=3) == []


@covers("EndTransaction")
async def test_only_committed_messages_are_delivered(cluster: Cluster, service: Service) -> None:
    async with await _client(cluster, service, "TRANSACTION") as client:
        halves = [await client.send_one(body, message_type=d.TRANSACTION) for body in (b"kept", b"dropped")]
        assert await _end(client, halves[1], d.ROLLBACK) == Code.OK
        assert await _end(client, halves[0], d.COMMIT) == Code.OK
        # A second end is refused, and delivers no message that has been rolled back.
        for half in halves:
            assert await _end(client, half, d.COMMIT) == Code.INTERNAL_SERVER_ERROR
        [message] = await client.receive_all(1)
        assert message.body == b"kept"
        # As at the official proxy: its Node.js client's tests compare them.
        ids = {message.user_properties["__transactionId__"], message.system_properties.message_id}
        assert ids == {halves[0].message_id} == {halves[0].transaction_id}
        assert await client.receive(wait=4) == []
        halves[0].transaction_id = "nonsense"
        assert await _end(client, halves[0], d.COMMIT) == Code.INVALID_TRANSACTION_ID


@covers("EndTransaction", "Telemetry.recover_orphaned_transaction_command")
async def test_open_transaction_is_checked_until_it_is_decided(cluster: Cluster, service: Service) -> None:
    async with await _client(cluster, service, "TRANSACTION") as client, Telemetry(client, d.PRODUCER) as telemetry:
        half = await client.send_one(b"open", message_type=d.TRANSACTION)
        assert await _end(client, half, d.TRANSACTION_RESOLUTION_UNSPECIFIED) == Code.OK
        check = await telemetry.wait("recover_orphaned_transaction_command")
        assert (check.message.body, check.message.system_properties.message_id) == (b"open", half.message_id)
        half.transaction_id = check.transaction_id
        assert await _end(client, half, d.COMMIT, d.SOURCE_SERVER_CHECK) == Code.OK
        assert bodies(await client.receive_all(1)) == [b"open"]
        checks = len(telemetry.commands)
        await asyncio.sleep(4)
        assert len(telemetry.commands) == checks

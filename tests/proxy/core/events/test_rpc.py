"""Observations of rpcs, through a whole replica with an embedded broker and a gRPC client."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from protos.apache.rocketmq.v2 import definition_pb2 as types
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from proxy.core.events import Observation, identity
from proxy.core.events.rpc import of_rpc
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.grpc import GrpcSettings
from proxy.settings.model import Settings
from tests.grpc_gateway.fakes import make_rpc
from tests.proxy.messages import request
from tests.proxy.replica import Client, running

pytestmark = pytest.mark.anyio

WHO = (("x-mq-client-id", "c1"), ("x-mq-language", "GO"), ("x-mq-client-version", "5.1.4"))
TOPIC, GROUP = types.Resource(name="orders"), types.Resource(name="g")


class Seen:
    """A client and the observations of its rpcs."""

    def __init__(self, stub: Any, app: App) -> None:
        self.stub = stub
        self.all: list[Observation] = []
        app.core.observers.append(self.all.append)

    def last(self, name: str) -> Observation:
        return [seen for seen in self.all if seen.code == name][-1]


@pytest.fixture
async def seen(tmp_path: Path) -> AsyncIterator[Seen]:
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded=EmbeddedSettings(directory=tmp_path),
        grpc=GrpcSettings(validate_message_type=False),
    )
    async with running(settings) as app, _channel(app) as channel:
        # A remoting client's first send creates the topic; gRPC clients do not create topics.
        client = await Client.connect(app)
        await client.ask(request(310, b"", a="p", b="orders", c="TBW102", d="4", e="0", f="0", g="0", h="0"))
        await client.close()
        yield Seen(MessagingServiceStub(channel), app)


@asynccontextmanager
async def _channel(app: App) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
        yield channel


def message(body: bytes, **system: Any) -> types.Message:
    return types.Message(topic=TOPIC, body=body, system_properties=types.SystemProperties(message_id="m", **system))


@pytest.mark.parametrize(
    ("code", "messages"),
    [
        (Code.OK, 1),
        (Code.MASTER_PERSISTENCE_TIMEOUT, 1),
        (Code.SLAVE_PERSISTENCE_TIMEOUT, 1),
        (Code.HA_NOT_AVAILABLE, 1),
        (Code.TOO_MANY_REQUESTS, 0),
    ],
)
def test_messages_count_if_they_are_stored(code: int, messages: int) -> None:
    rpc = make_rpc()
    rpc.messages = 1
    assert of_rpc("SendMessage", rpc, None, code, 0.0, 1.0).messages == messages


async def test_delay_of_the_latest_timestamp_is_limited(seen: Seen) -> None:
    """The observed delay fits into 64 bits, whether the send is rejected or not."""
    never = message(b"", delivery_timestamp=Timestamp(seconds=2**62))
    await seen.stub.SendMessage(pb.SendMessageRequest(messages=[never]), metadata=WHO)
    assert orjson.dumps(seen.last("SendMessage").delay_ms)


async def test_rpcs_from_send_to_acknowledgement_are_observed(seen: Seen) -> None:
    due = Timestamp(seconds=int(time.time()) + 3)
    sent = message(b"12345", keys=["k1", "k2"], delivery_timestamp=due)
    answer = await seen.stub.SendMessage(pb.SendMessageRequest(messages=[sent]), metadata=WHO)
    assert answer.status.code == Code.OK
    send = seen.last("SendMessage")
    assert (send.protocol, send.response, send.ok, send.topic, send.group) == ("grpc", Code.OK, True, "orders", None)
    assert (send.broker, send.messages, send.bytes_in, send.key) == ("broker-a", 1, 5, "k1")
    assert send.queue is not None
    assert send.delay_ms is not None
    assert send.delay_ms <= 3000
    assert send.broker_seconds is not None
    assert 0 < send.broker_seconds <= send.seconds < 60
    assert identity(send.channel) == ("c1", "GO", "5.1.4")
    assert send.peer.address.host == "127.0.0.1"

    wanted = pb.ReceiveMessageRequest(
        group=GROUP,
        message_queue=types.MessageQueue(topic=TOPIC),
        batch_size=4,
        invisible_duration=Duration(seconds=20),
        filter_expression=types.FilterExpression(type=types.FilterType.TAG, expression="*"),
    )
    deliveries = [r.message async for r in seen.stub.ReceiveMessage(wanted, metadata=WHO) if r.HasField("message")]
    receive = seen.last("ReceiveMessage")
    assert (receive.topic, receive.group, receive.broker) == ("orders", "g", "broker-a")
    assert (receive.messages, receive.bytes_out, receive.attempt) == (1, 5, 1)
    # The long poll's wait is the broker's part.
    assert receive.broker_seconds is not None
    assert receive.broker_seconds > receive.seconds / 2

    [delivery] = deliveries
    entry = pb.AckMessageEntry(receipt_handle=delivery.system_properties.receipt_handle)
    request = pb.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
    assert (await seen.stub.AckMessage(request, metadata=WHO)).status.code == Code.OK
    ack = seen.last("AckMessage")
    assert (ack.topic, ack.group, ack.messages, ack.broker) == ("orders", "g", 1, "broker-a")
    assert [one.code for one in seen.all if one.protocol == "grpc"] == ["SendMessage", "ReceiveMessage", "AckMessage"]


async def test_rejected_rpcs_are_observed_with_their_codes(seen: Seen) -> None:
    await seen.stub.SendMessage(pb.SendMessageRequest(messages=[message(b"1")]))
    refused = seen.last("SendMessage")
    assert (refused.response, refused.ok, refused.messages) == (Code.CLIENT_ID_REQUIRED, False, 0)
    assert (refused.topic, refused.broker, refused.broker_seconds) == ("orders", None, None)
    assert identity(refused.channel) == (None, None, None)
    await seen.stub.QueryRoute(pb.QueryRouteRequest(topic=types.Resource(name="nowhere")), metadata=WHO)
    assert (seen.last("QueryRoute").response, seen.last("QueryRoute").ok) == (Code.ILLEGAL_ACCESS_POINT, False)


async def test_every_rpc_has_a_reader() -> None:
    from proxy.core.events.rpc import _READERS

    service = pb.DESCRIPTOR.services_by_name["MessagingService"]
    assert _READERS.keys() == {method.name for method in service.methods} - {"Telemetry"}


@pytest.mark.parametrize(
    ("system", "key", "delayed"),
    [
        ({}, None, False),
        ({"keys": ["order-1", "order-2"]}, "order-1", False),
        ({"message_group": "customer-7"}, "customer-7", False),
        ({"keys": ["k" * 300]}, "k" * 255, False),
        ({"keys": ["order-1"], "delivery_timestamp": Timestamp(seconds=2**32)}, "order-1", True),
        (
            {"message_type": types.MessageType.TRANSACTION, "delivery_timestamp": Timestamp(seconds=2**32)},
            None,
            True,
        ),
    ],
    ids=("plain", "keys", "group", "long key", "delay", "transaction with a delivery time"),
)
async def test_send_is_observed_with_its_topic_key_size_and_delay(
    seen: Seen, system: dict[str, Any], key: str | None, delayed: bool
) -> None:
    await seen.stub.SendMessage(pb.SendMessageRequest(messages=[message(b"hello", **system)]), metadata=WHO)
    observed = seen.last("SendMessage")
    assert (observed.topic, observed.group, observed.bytes_in, observed.key) == ("orders", None, 5, key)
    assert (observed.delay_ms is not None) is delayed


async def test_ack_is_observed_with_its_topic_and_group_whether_its_handle_is_valid_or_not(seen: Seen) -> None:
    entry = pb.AckMessageEntry(message_id="m", receipt_handle="not a handle")
    ack = pb.AckMessageRequest(topic=TOPIC, group=GROUP, entries=[entry])
    await seen.stub.AckMessage(ack, metadata=WHO)
    observed = seen.last("AckMessage")
    assert (observed.topic, observed.group, observed.key, observed.bytes_in) == ("orders", "g", None, 0)

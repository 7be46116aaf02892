"""gRPC clients with credentials, and a request of theirs for each rpc."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import (
    ClientType,
    FilterExpression,
    Message,
    MessageQueue,
    Resource,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
)
from protos.apache.rocketmq.v2.definition_pb2 import (
    Settings as ClientSettings,
)
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from remoting.signature import Credentials
from tests.proxy.auth.tokens import token
from tests.proxy.auth.users import grpc_metadata
from tests.proxy.replica import soon

TOPIC, GROUP = Resource(name="orders"), Resource(name="g")
QUEUE = MessageQueue(topic=TOPIC, id=0)


class GrpcClient:
    """A gRPC client with credentials."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials | None, client_id: str = "c1") -> None:
        self.stub: Any = MessagingServiceStub(channel)
        signature = {} if credentials is None else grpc_metadata(credentials)
        self.metadata = tuple({"x-mq-client-id": client_id, "x-mq-language": "JAVA", **signature}.items())

    async def call(self, name: str, message: Any) -> int:
        """Return the v2 code of the first response."""
        calling = getattr(self.stub, name)(message, metadata=self.metadata, timeout=20)
        if hasattr(calling, "__aiter__"):
            async for response in calling:
                if response.HasField("status"):
                    return int(response.status.code)
            raise AssertionError("no status")
        return int((await calling).status.code)

    async def telemetry(self, command: pb.TelemetryCommand | None) -> Any:
        """Return the first response on a new stream, after this command. Raises AioRpcError."""
        stream = self.stub.Telemetry(_only(command), metadata=self.metadata)
        return await soon(anext(aiter(stream)))


async def _only(command: pb.TelemetryCommand | None) -> AsyncIterator[pb.TelemetryCommand]:
    """Yield the command, if any, and leave the stream open."""
    if command is not None:
        yield command
    await asyncio.sleep(60)


def rpcs(topic: Resource = TOPIC, group: Resource = GROUP) -> dict[str, Any]:
    """A request for each unary and server-streaming rpc."""
    properties = SystemProperties(message_id="m1")
    queue = MessageQueue(topic=topic, id=0)
    return {
        "QueryRoute": pb.QueryRouteRequest(topic=topic),
        "QueryAssignment": pb.QueryAssignmentRequest(topic=topic, group=group),
        "SendMessage": pb.SendMessageRequest(messages=[Message(topic=topic, system_properties=properties, body=b"x")]),
        "ReceiveMessage": pb.ReceiveMessageRequest(
            group=group, message_queue=queue, batch_size=1, filter_expression=FilterExpression(expression="*")
        ),
        "AckMessage": pb.AckMessageRequest(
            group=group, topic=topic, entries=[pb.AckMessageEntry(message_id="m", receipt_handle="h")]
        ),
        "ForwardMessageToDeadLetterQueue": pb.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic),
        "Heartbeat": pb.HeartbeatRequest(group=group, client_type=ClientType.SIMPLE_CONSUMER),
        "EndTransaction": pb.EndTransactionRequest(topic=topic, message_id="m", transaction_id="t"),
        "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest(group=group, topic=topic),
        "PullMessage": pb.PullMessageRequest(group=group, message_queue=queue, batch_size=1),
        "UpdateOffset": pb.UpdateOffsetRequest(group=group, message_queue=queue, offset=0),
        "GetOffset": pb.GetOffsetRequest(group=group, message_queue=queue),
        "QueryOffset": pb.QueryOffsetRequest(message_queue=queue),
        "RecallMessage": pb.RecallMessageRequest(topic=topic, recall_handle="h"),
        "SyncLiteSubscription": pb.SyncLiteSubscriptionRequest(group=group, topic=topic),
    }


def subscription(topic: str = "orders") -> pb.TelemetryCommand:
    entry = SubscriptionEntry(topic=Resource(name=topic), expression=FilterExpression(expression="*"))
    return pb.TelemetryCommand(
        settings=ClientSettings(
            client_type=ClientType.SIMPLE_CONSUMER, subscription=Subscription(group=GROUP, subscriptions=[entry])
        )
    )


def bearer(channel: grpc.aio.Channel, valid: float = 3600.0, client_id: str = "c1") -> GrpcClient:
    """A client with a token that is valid for these seconds."""
    client = GrpcClient(channel, None, client_id)
    text = token(sub="alice-1", exp=int(time.time() + valid))
    client.metadata = (*client.metadata, ("authorization", f"Bearer {text}"))
    return client


async def opened(client: GrpcClient) -> Any:
    """Return a telemetry stream on which settings were exchanged."""
    stream = client.stub.Telemetry(metadata=client.metadata)
    await stream.write(subscription())
    assert (await soon(stream.read())).HasField("settings")
    return stream


async def ended(stream: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await soon(stream.read())
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "expired" in str(raised.value.details()) or "revoked" in str(raised.value.details())


def receive() -> Any:
    request = rpcs()["ReceiveMessage"]
    request.invisible_duration.seconds = request.long_polling_timeout.seconds = 20
    return request

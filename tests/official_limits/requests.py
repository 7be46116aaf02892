"""Builders of the requests whose limits are compared, and the names in them."""

import time
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb

# Topics by message type, one that gets no messages, one with the longest name, and the consumer group. They exist
# before the requests.
NORMAL, FIFO, DELAY, TRANSACTION = "limits-normal", "limits-fifo", "limits-delay", "limits-transaction"
RECEIVED = "limits-received"
LONGEST = "l" * 127
TOPICS = {
    NORMAL: "NORMAL",
    RECEIVED: "NORMAL",
    LONGEST: "NORMAL",
    FIFO: "FIFO",
    DELAY: "DELAY",
    TRANSACTION: "TRANSACTION",
}
GROUP = "limits-group"
DAY = 86_400.0


def resource(name: str) -> d.Resource:
    """Return a topic or group."""
    return d.Resource(name=name)


def seconds(value: float) -> Duration:
    """Return a duration."""
    duration = Duration()
    duration.FromMilliseconds(int(value * 1000))
    return duration


def at(value: float) -> Timestamp:
    """Return a time since 1970 in seconds."""
    stamp = Timestamp()
    stamp.FromMilliseconds(int(value * 1000))
    return stamp


def later(value: float) -> Timestamp:
    """Return a time in the future."""
    return at(time.time() + value)


def message(topic: str = NORMAL, body: bytes = b"x", user: dict[str, str] | None = None, **system: Any) -> d.Message:
    """Return a message; `system` are its system properties."""
    return d.Message(
        topic=resource(topic),
        body=body,
        user_properties=user or {},
        system_properties=d.SystemProperties(**{"message_id": "01LIMITS", **system}),
    )


def send(*messages: d.Message) -> pb.SendMessageRequest:
    """Return a SendMessage request."""
    return pb.SendMessageRequest(messages=messages)


def one(topic: str = NORMAL, body: bytes = b"x", user: dict[str, str] | None = None, **system: Any) -> Any:
    """Return a SendMessage request of one message."""
    return send(message(topic, body, user, **system))


def receive(
    topic: str = RECEIVED,
    group: str = GROUP,
    invisible: float = 20,
    expression: Any = None,
    batch: int = 1,
    **more: Any,
) -> pb.ReceiveMessageRequest:
    """Return a ReceiveMessage request with the minimum of long polling."""
    return pb.ReceiveMessageRequest(
        **{
            "group": resource(group),
            "message_queue": d.MessageQueue(topic=resource(topic), id=-1),
            "filter_expression": expression or d.FilterExpression(type=d.TAG, expression="*"),
            "batch_size": batch,
            "invisible_duration": seconds(invisible),
            "long_polling_timeout": seconds(0),
            **more,
        }
    )


def sql(expression: str) -> d.FilterExpression:
    """Return a SQL92 filter."""
    return d.FilterExpression(type=d.SQL, expression=expression)


def ack(*handles: str, topic: str = NORMAL, group: str = GROUP) -> pb.AckMessageRequest:
    """Return an AckMessage request."""
    entries = [pb.AckMessageEntry(message_id="01LIMITS", receipt_handle=handle) for handle in handles]
    return pb.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)


def change(handle: str, invisible: float = 30, topic: str = NORMAL, group: str = GROUP) -> Any:
    """Return a ChangeInvisibleDuration request."""
    return pb.ChangeInvisibleDurationRequest(
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        invisible_duration=seconds(invisible),
        message_id="01LIMITS",
    )


def forward(handle: str, topic: str = NORMAL, group: str = GROUP) -> Any:
    """Return a ForwardMessageToDeadLetterQueue request."""
    return pb.ForwardMessageToDeadLetterQueueRequest(
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        message_id="01LIMITS",
        delivery_attempt=1,
        max_delivery_attempts=3,
    )


def end_transaction(transaction_id: str, message_id: str = "01LIMITS", topic: str = TRANSACTION) -> Any:
    """Return an EndTransaction request that commits."""
    return pb.EndTransactionRequest(
        topic=resource(topic),
        message_id=message_id,
        transaction_id=transaction_id,
        resolution=d.COMMIT,
        source=d.SOURCE_CLIENT,
    )


def settings(client_type: d.ClientType) -> pb.TelemetryCommand:
    """Return a client's first settings."""
    value = d.Settings(client_type=client_type, request_timeout=seconds(3))
    if client_type == d.PRODUCER:
        value.publishing.topics.extend(resource(name) for name in TOPICS)
    else:
        value.subscription.group.CopyFrom(resource(GROUP))
        value.subscription.subscriptions.append(
            d.SubscriptionEntry(topic=resource(RECEIVED), expression=d.FilterExpression(type=d.TAG, expression="*"))
        )
    return pb.TelemetryCommand(settings=value)

"""Targets in the readers of gRPC requests that do without protobuf: they read as protobuf does."""

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.apache.rocketmq.v2.definition_pb2 import Encoding, Message, MessageType, Resource, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import AckMessageEntry, AckMessageRequest, SendMessageRequest
from tests.fuzz.target import Target
from tests.grpc_gateway.protobuf_agreement import check_ack_request, check_sent_message


def _sent(**system: Any) -> bytes:
    message = Message(
        topic=Resource(name="orders"),
        system_properties=SystemProperties(message_id="01AB", **system),
        body=b"body",
        user_properties={"a": "1", "b": ""},
    )
    return SendMessageRequest(messages=[message]).SerializeToString()


_ACK = AckMessageRequest(
    group=Resource(name="g"),
    topic=Resource(name="t"),
    entries=[AckMessageEntry(message_id="01AB", receipt_handle="0 1 2 3 0 broker-a 1 5 1000", lite_topic="l")],
)

TARGETS = (
    Target(
        "sent-messages",
        check_sent_message,
        (
            _sent(tag="T", keys=["k"], body_encoding=Encoding.GZIP, born_host="h", trace_context="00-1"),
            _sent(message_type=MessageType.FIFO, message_group="m", queue_id=3, born_timestamp=Timestamp(seconds=1)),
            _sent(message_type=MessageType.DELAY, delivery_timestamp=Timestamp(seconds=1 << 32, nanos=999)),
        ),
    ),
    Target("acknowledgements", check_ack_request, (_ACK.SerializeToString(),)),
)

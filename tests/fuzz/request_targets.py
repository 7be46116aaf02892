"""Targets in the readers of gRPC requests that do without protobuf: they read as protobuf does."""

from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.consuming.ack_request import AckRequest, read_ack_request
from grpc_gateway.sent_message import SentMessage, read_single_message, sent_message
from protos.apache.rocketmq.v2.definition_pb2 import Encoding, Message, MessageType, Resource, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import AckMessageEntry, AckMessageRequest, SendMessageRequest
from tests.fuzz.target import Target


def _facts(message: SentMessage) -> dict[str, Any]:
    # Compiled classes have no __slots__.
    return {name: getattr(message, name) for name in dir(message) if not name.startswith("_")}


def _test_sent_message(data: bytes) -> None:
    """A message is left to protobuf, or read to what protobuf reads."""
    message = read_single_message(data)
    if message is None:
        return
    [expected] = SendMessageRequest.FromString(data).messages
    assert _facts(message) == _facts(sent_message(expected))


def _test_ack_request(data: bytes) -> None:
    """An acknowledgement is read, or refused, as protobuf does."""
    try:
        read = read_ack_request(data)
    except DecodeError:
        read = None
    try:
        expected = AckMessageRequest.FromString(data)
    except DecodeError:
        assert read is None
        return
    if isinstance(read, AckRequest):
        assert (read.group, read.topic, read.parsed()) == (expected.group.name, expected.topic.name, expected)
        [entry] = expected.entries
        assert read.entry.message_id == entry.message_id
        assert read.entry.receipt_handle == entry.receipt_handle
        assert read.entry.lite_topic == entry.lite_topic
    else:
        assert read == expected


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
        _test_sent_message,
        (
            _sent(tag="T", keys=["k"], body_encoding=Encoding.GZIP, born_host="h", trace_context="00-1"),
            _sent(message_type=MessageType.FIFO, message_group="m", queue_id=3, born_timestamp=Timestamp(seconds=1)),
            _sent(message_type=MessageType.DELAY, delivery_timestamp=Timestamp(seconds=1 << 32, nanos=999)),
        ),
    ),
    Target("acknowledgements", _test_ack_request, (_ACK.SerializeToString(),)),
)

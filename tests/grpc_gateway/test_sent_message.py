from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from grpc_gateway.sent_message import SendRequest, read_send_request, read_single_message, sent_message
from protos.apache.rocketmq.v2.definition_pb2 import (
    Digest,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest
from tests.grpc_gateway.changed_bytes import with_changed_bytes
from tests.grpc_gateway.protobuf_agreement import check_sent_message, facts_of_message

TEXT = st.text(max_size=20)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.builds(Timestamp, seconds=INT64, nanos=INT32) | st.builds(
    Timestamp, seconds=st.integers(0, 2**33), nanos=st.integers(0, 999_999_999)
)
SYSTEM = st.builds(
    SystemProperties,
    tag=st.none() | TEXT,
    keys=st.lists(TEXT, max_size=3),
    message_id=TEXT,
    body_digest=st.none() | st.builds(Digest, checksum=TEXT),
    body_encoding=st.integers(0, 200),
    message_type=st.integers(-2, 200),
    born_timestamp=st.none() | TIMESTAMPS,
    born_host=TEXT,
    store_timestamp=st.none() | TIMESTAMPS,
    delivery_timestamp=st.none() | TIMESTAMPS,
    queue_id=INT32,
    message_group=st.none() | TEXT,
    trace_context=st.none() | TEXT,
    orphaned_transaction_recovery_duration=st.none() | st.builds(Duration, seconds=INT64),
    lite_topic=st.none() | TEXT,
    priority=st.none() | INT32,
)
MESSAGES = st.builds(
    Message,
    topic=st.none() | st.builds(Resource, resource_namespace=TEXT, name=TEXT),
    user_properties=st.dictionaries(TEXT, TEXT, max_size=4),
    system_properties=st.none() | SYSTEM,
    body=st.binary(max_size=300),
)
REQUESTS = st.builds(SendMessageRequest, messages=st.lists(MESSAGES, max_size=2))


def usual() -> SystemProperties:
    """Return what official clients set."""
    system = SystemProperties(
        tag="TagA",
        keys=["k1", "k2"],
        message_id="01AB",
        body_encoding=Encoding.GZIP,
        message_type=MessageType.TRANSACTION,
        born_host="host",
        queue_id=3,
        trace_context="00-1-2-01",
    )
    system.born_timestamp.FromMilliseconds(1_795_254_240_123)
    return system


def fifo() -> SystemProperties:
    return SystemProperties(message_id="01AB", message_type=MessageType.FIFO, message_group="é中")


def delayed() -> SystemProperties:
    return SystemProperties(message_id="01AB", delivery_timestamp=Timestamp(seconds=1_795_254_240, nanos=1_999_999))


def request(system: SystemProperties | None = None, **fields: Any) -> bytes:
    topic = Resource(name="orders")
    message = Message(topic=topic, system_properties=system, body=bytes(300), user_properties={"a": "1", "é": ""})
    return SendMessageRequest(messages=[message], **fields).SerializeToString()


@pytest.mark.parametrize("system", [usual(), fifo(), delayed()], ids=["usual", "fifo", "delayed"])
def test_a_message_of_an_official_client_is_read_without_protobuf(system: SystemProperties) -> None:
    read = read_send_request(request(system))
    assert isinstance(read, SendRequest)
    [expected] = SendMessageRequest.FromString(request(system)).messages
    assert facts_of_message(read.message) == facts_of_message(sent_message(expected))
    assert read.parsed() == SendMessageRequest.FromString(request(system))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        SendMessageRequest(messages=[Message(), Message()]).SerializeToString(),
        # Protobuf merges messages that appear twice.
        request() + request(),
        request(SystemProperties(priority=1)),
        request(SystemProperties(lite_topic="lite")),
        request(SystemProperties(body_digest=Digest(checksum="1"))),
        request(SystemProperties(born_timestamp=Timestamp(seconds=-1))),
        request(SystemProperties(receipt_handle="handle")),
        request(SystemProperties(queue_id=-1)),
    ],
)
def test_other_requests_are_left_to_protobuf(data: bytes) -> None:
    assert read_single_message(data) is None
    assert read_send_request(data) == SendMessageRequest.FromString(data)


@pytest.mark.parametrize(
    "data", [b"\x0a\x02\x1a\xff", b"\x0a\x05\x1a\x03\x1a\x01\xff", request()[:-1], b"\x0a\x02\x0a\x01"]
)
def test_malformed_requests_are_rejected_by_protobuf(data: bytes) -> None:
    assert read_single_message(data) is None
    with pytest.raises(DecodeError):
        read_send_request(data)


@given(REQUESTS)
def test_a_request_is_read_as_protobuf_does(request: SendMessageRequest) -> None:
    check_sent_message(request.SerializeToString())


@given(REQUESTS, st.data())
def test_a_changed_request_is_read_as_protobuf_does(request: SendMessageRequest, data: st.DataObject) -> None:
    check_sent_message(with_changed_bytes(request.SerializeToString(), data))


@given(st.binary(max_size=60))
# Fields that appear twice, in a message and in its system properties; integers with more bytes than needed.
@example(b"\x0a\x06\x22\x01a\x22\x01b")
@example(b"\x0a\x08\x1a\x06\x0a\x01a\x0a\x01b")
@example(b"\x0a\x08\x1a\x06\x3a\x04\x08\x81\x80\x00")
@example(b"\x0a\x0a\x1a\x08\x3a\x02\x08\x01\x3a\x02\x10\x01")
@example(b"\x0a\x08\x12\x06\x12\x01v\x0a\x01k")
@example(b"\x0a\x85\x80\x00\x22\x03abc")
# Sizes of six bytes, which protobuf refuses.
@example(b"\x0a\x83\x80\x80\x80\x80\x00\x22\x01b")
@example(b"\x0a\x08\x22\x81\x80\x80\x80\x80\x00b")
@example(b"\x0a\x0a\x1a\x08\x0a\x81\x80\x80\x80\x80\x00b")
@example(bytes.fromhex("0a140a031201741a848080808080001a026964220162"))
def test_any_bytes_are_read_as_protobuf_does(data: bytes) -> None:
    check_sent_message(data)

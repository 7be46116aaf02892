"""Checks that the readers of requests that do without protobuf agree with protobuf, for any bytes."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError

from grpc_gateway.consuming.ack_request import AckRequest, ack_entry, read_ack_request
from grpc_gateway.permissions import RPC_PERMISSIONS
from grpc_gateway.sent_message import SendRequest, SentMessage, read_single_message, sent_message
from protos.apache.rocketmq.v2.service_pb2 import AckMessageRequest, SendMessageRequest


def facts_of_message(message: SentMessage) -> dict[str, Any]:
    # Compiled classes have no __slots__.
    return {name: getattr(message, name) for name in dir(message) if not name.startswith("_")}


def check_sent_message(data: bytes) -> None:
    """Check that the bytes are left to protobuf, or read as protobuf reads them."""
    message = read_single_message(data)
    if message is None:
        return
    request = SendMessageRequest.FromString(data)
    [expected] = request.messages
    assert SendRequest(data, message).permissions() == tuple(RPC_PERMISSIONS["SendMessage"](request))
    assert facts_of_message(message) == facts_of_message(sent_message(expected))


def check_ack_request(data: bytes) -> None:
    """Check that protobuf has read the bytes, or would read the same."""
    try:
        read = read_ack_request(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            AckMessageRequest.FromString(data)
        return
    expected = AckMessageRequest.FromString(data)
    if isinstance(read, AckRequest):
        assert (read.group, read.topic) == (expected.group.name, expected.topic.name)
        assert read.permissions() == tuple(RPC_PERMISSIONS["AckMessage"](expected))
        [entry] = expected.entries
        assert _facts_of_entry(read.entry) == _facts_of_entry(ack_entry(entry)) == _facts_of_entry(entry)
        assert read.parsed() == expected
    else:
        assert read == expected


def _facts_of_entry(entry: Any) -> tuple[str, str, str]:
    return entry.message_id, entry.receipt_handle, entry.lite_topic

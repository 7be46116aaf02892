"""Acknowledgements as a consumer has sent them, from a protobuf message or directly from the bytes of a request."""

from typing import Final

from grpc_gateway.permissions import consume_permissions
from grpc_gateway.wire_decoding import LONG, SIZE_SHIFTS, UNREADABLE, ReadRequest, read_integer, resource_name, tag
from protos.apache.rocketmq.v2.service_pb2 import AckMessageEntry, AckMessageRequest
from remoting.permissions import Permission

_GROUP: Final = tag(AckMessageRequest.DESCRIPTOR, "group")
_TOPIC: Final = tag(AckMessageRequest.DESCRIPTOR, "topic")
_ENTRIES: Final = tag(AckMessageRequest.DESCRIPTOR, "entries")
_MESSAGE_ID: Final = tag(AckMessageEntry.DESCRIPTOR, "message_id")
_RECEIPT_HANDLE: Final = tag(AckMessageEntry.DESCRIPTOR, "receipt_handle")
_LITE_TOPIC: Final = tag(AckMessageEntry.DESCRIPTOR, "lite_topic")


class AckEntry:
    """An AckMessageEntry. lite_topic: empty without one."""

    __slots__ = ("lite_topic", "message_id", "receipt_handle")

    def __init__(self, message_id: str, receipt_handle: str, lite_topic: str) -> None:
        self.message_id = message_id
        self.receipt_handle = receipt_handle
        self.lite_topic = lite_topic


class AckRequest(ReadRequest):
    """An AckMessageRequest of one entry. group, topic: their names."""

    __slots__ = ("entry", "group", "topic")

    def __init__(self, data: bytes, group: str, topic: str, entry: AckEntry) -> None:
        super().__init__(data, AckMessageRequest)
        self.group = group
        self.topic = topic
        self.entry = entry

    def permissions(self) -> tuple[Permission, ...]:
        """Return the permissions on topic and group."""
        return consume_permissions(self.topic, self.group)


def ack_entry(entry: AckMessageEntry) -> AckEntry:
    """Return the fields of a protobuf message."""
    return AckEntry(entry.message_id, entry.receipt_handle, entry.lite_topic)


def read_ack_request(data: bytes) -> AckRequest | AckMessageRequest:
    """Return the request with these bytes, read without protobuf if that is possible. Raises DecodeError."""
    try:
        read = read_single_ack(data)
    except UNREADABLE:
        read = None
    return AckMessageRequest.FromString(data) if read is None else read


def read_single_ack(data: bytes) -> AckRequest | None:
    """Return a request with each field once, or None. Raises an error of UNREADABLE for some of the others."""
    group: str | None = None
    topic: str | None = None
    entry: AckEntry | None = None
    position, end = 0, len(data)
    while position < end:
        field, size, start = data[position], data[position + 1], position + 2
        if size >= LONG:
            size, start = read_integer(data, position + 1, SIZE_SHIFTS)
        position = start + size
        if size < 0 or position > end:
            return None
        if field == _GROUP and group is None:
            group = resource_name(data[start:position])
        elif field == _TOPIC and topic is None:
            topic = resource_name(data[start:position])
        elif field == _ENTRIES and entry is None:
            entry = _read_entry(data, start, position)
            if entry is None:
                return None
        else:
            return None
    if group is None or topic is None or entry is None:
        return None
    return AckRequest(data, group, topic, entry)


def _read_entry(data: bytes, position: int, end: int) -> AckEntry | None:
    message_id = receipt_handle = lite_topic = ""
    while position < end:
        field, size, start = data[position], data[position + 1], position + 2
        if size >= LONG:
            size, start = read_integer(data, position + 1, SIZE_SHIFTS)
        position = start + size
        if size < 0 or position > end:
            return None
        text = data[start:position].decode()
        if field == _RECEIPT_HANDLE:
            receipt_handle = text
        elif field == _MESSAGE_ID:
            message_id = text
        elif field == _LITE_TOPIC:
            lite_topic = text
        else:
            return None
    return AckEntry(message_id, receipt_handle, lite_topic)

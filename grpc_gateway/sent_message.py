"""A message as its producer has sent it, from a protobuf message or directly from the bytes of a request."""

from typing import Final

from grpc_gateway import validation
from grpc_gateway.permissions import send_permission
from grpc_gateway.sent_elements import check_elements
from grpc_gateway.wire_decoding import (
    LENGTH_DELIMITED,
    LONG,
    SIZE_SHIFTS,
    UNREADABLE,
    VARINT,
    ReadRequest,
    read_integer,
    resource_name,
    tag,
)
from protos.apache.rocketmq.v2.definition_pb2 import Message, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest
from remoting.permissions import Permission

_MESSAGES: Final = tag(SendMessageRequest.DESCRIPTOR, "messages")
_TOPIC: Final = tag(Message.DESCRIPTOR, "topic")
_USER_PROPERTIES: Final = tag(Message.DESCRIPTOR, "user_properties")
_SYSTEM_PROPERTIES: Final = tag(Message.DESCRIPTOR, "system_properties")
_BODY: Final = tag(Message.DESCRIPTOR, "body")
_SYSTEM: Final = SystemProperties.DESCRIPTOR
_TAG: Final = tag(_SYSTEM, "tag")
_KEYS: Final = tag(_SYSTEM, "keys")
_MESSAGE_ID: Final = tag(_SYSTEM, "message_id")
_BODY_ENCODING: Final = tag(_SYSTEM, "body_encoding", VARINT)
_MESSAGE_TYPE: Final = tag(_SYSTEM, "message_type", VARINT)
_BORN_TIMESTAMP: Final = tag(_SYSTEM, "born_timestamp")
_BORN_HOST: Final = tag(_SYSTEM, "born_host")
_DELIVERY_TIMESTAMP: Final = tag(_SYSTEM, "delivery_timestamp")
_QUEUE_ID: Final = tag(_SYSTEM, "queue_id", VARINT)
_MESSAGE_GROUP: Final = tag(_SYSTEM, "message_group")
_TRACE_CONTEXT: Final = tag(_SYSTEM, "trace_context")
# Tags of the fields of a map entry, and of a timestamp.
_KEY: Final = 1 << 3 | LENGTH_DELIMITED
_VALUE: Final = 2 << 3 | LENGTH_DELIMITED
_SECONDS: Final = 1 << 3 | VARINT
_NANOS: Final = 2 << 3 | VARINT
_MAX_INT: Final = 2**31 - 1


class SentMessage:
    """The fields of a `Message` that are stored.

    topic: its name. born_timestamp, delivery_timestamp: ms since 1970; None without a delivery timestamp.
    recovery_seconds, priority: None if the producer has not set them.
    """

    __slots__ = (
        "body",
        "body_encoding",
        "born_host",
        "born_timestamp",
        "delivery_timestamp",
        "keys",
        "lite_topic",
        "message_group",
        "message_id",
        "message_type",
        "priority",
        "recovery_seconds",
        "tag",
        "topic",
        "trace_context",
        "user_properties",
    )

    def __init__(self) -> None:
        self.topic = ""
        self.body = b""
        self.user_properties: dict[str, str] = {}
        self.tag = ""
        self.keys: list[str] = []
        self.message_id = ""
        self.body_encoding = 0
        self.message_type = 0
        self.born_timestamp = 0
        self.born_host = ""
        self.delivery_timestamp: int | None = None
        self.message_group = ""
        self.trace_context = ""
        self.recovery_seconds: int | None = None
        self.lite_topic = ""
        self.priority: int | None = None

    @property
    def sharding_key(self) -> str:
        """The message group, or else the lite topic; it determines the queue. "" without either."""
        return self.message_group or self.lite_topic


class SendRequest(ReadRequest):
    """A SendMessageRequest of one message."""

    __slots__ = ("message",)

    def __init__(self, data: bytes, message: SentMessage) -> None:
        super().__init__(data, SendMessageRequest)
        self.message = message

    def permissions(self) -> tuple[Permission, ...]:
        """Return the permission on the message's topic."""
        return (send_permission(self.message.topic),)


def sent_message(message: Message) -> SentMessage:
    """Return the fields of a protobuf message."""
    # Local variables, since each access to a field builds its value again.
    sent, system, user = SentMessage(), message.system_properties, message.user_properties
    sent.topic = message.topic.name
    sent.body = message.body
    # Not `items()`: the container's view is slow.
    sent.user_properties = {name: user[name] for name in user}
    sent.tag = system.tag
    # A slice, since iteration of a repeated field is slow.
    sent.keys = list(system.keys[:])
    sent.message_id = system.message_id
    sent.body_encoding = system.body_encoding
    sent.message_type = system.message_type
    sent.born_timestamp = validation.milliseconds(system.born_timestamp)
    sent.born_host = system.born_host
    if system.HasField("delivery_timestamp"):
        sent.delivery_timestamp = validation.milliseconds(system.delivery_timestamp)
    sent.message_group = system.message_group
    sent.trace_context = system.trace_context
    if system.HasField("orphaned_transaction_recovery_duration"):
        sent.recovery_seconds = system.orphaned_transaction_recovery_duration.seconds
    sent.lite_topic = system.lite_topic
    if system.HasField("priority"):
        sent.priority = system.priority
    return sent


def read_send_request(data: bytes) -> SendRequest | SendMessageRequest:
    """Return the request with these bytes, read without protobuf if that is possible. Raises DecodeError."""
    check_elements(data)
    message = read_single_message(data)
    return SendMessageRequest.FromString(data) if message is None else SendRequest(data, message)


def read_single_message(data: bytes) -> SentMessage | None:
    """Return the only message of a serialized SendMessageRequest, or None if it is to be read by protobuf."""
    try:
        if data[0] != _MESSAGES:
            return None
        size, position = read_integer(data, 1, SIZE_SHIFTS)
        return _read_message(data, position) if position + size == len(data) else None
    except UNREADABLE:
        return None


def _read_message(data: bytes, position: int) -> SentMessage | None:
    message, end = SentMessage(), len(data)
    # Fields that would be merged if they appeared twice.
    has_topic = has_system = False
    while position < end:
        field, size, start = data[position], data[position + 1], position + 2
        if size >= LONG:
            size, start = read_integer(data, position + 1, SIZE_SHIFTS)
        position = start + size
        if size < 0 or position > end:
            return None
        if field == _USER_PROPERTIES:
            if not _read_property(message.user_properties, data, start, position):
                return None
        elif field == _BODY:
            message.body = data[start:position]
        elif field == _TOPIC and not has_topic:
            has_topic = True
            message.topic = resource_name(data[start:position])
        elif field == _SYSTEM_PROPERTIES and not has_system:
            has_system = True
            if not _read_system_properties(message, data, start, position):
                return None
        else:
            return None
    return message


def _read_property(properties: dict[str, str], data: bytes, position: int, end: int) -> bool:
    """Read an entry with a key and a value in this order; return False for any other."""
    if data[position] != _KEY:
        return False
    size, start = data[position + 1], position + 2
    if size >= LONG:
        size, start = read_integer(data, position + 1, SIZE_SHIFTS)
    middle = start + size
    if size < 0 or middle >= end or data[middle] != _VALUE:
        return False
    size, value_start = data[middle + 1], middle + 2
    if size >= LONG:
        size, value_start = read_integer(data, middle + 1, SIZE_SHIFTS)
    if size < 0 or value_start + size != end:
        return False
    properties[data[start:middle].decode()] = data[value_start:end].decode()
    return True


def _read_system_properties(message: SentMessage, data: bytes, position: int, end: int) -> bool:
    """Read the properties that clients set for messages of most types; return False for any other."""
    has_born = False
    while position < end:
        field = data[position]
        if field < LONG:
            position += 1
        else:
            field, position = read_integer(data, position, SIZE_SHIFTS)
        value, start = data[position], position + 1
        if value >= LONG:
            value, start = read_integer(data, position, SIZE_SHIFTS)
            if value < 0:
                return False
        if not field & LENGTH_DELIMITED:
            position = start
            if value > _MAX_INT:
                return False
            if field == _MESSAGE_TYPE:
                message.message_type = value
            elif field == _BODY_ENCODING:
                message.body_encoding = value
            elif field != _QUEUE_ID:
                return False
            continue
        position = start + value
        if position > end:
            return False
        if field == _MESSAGE_ID:
            message.message_id = data[start:position].decode()
        elif field == _TAG:
            message.tag = data[start:position].decode()
        elif field == _KEYS:
            message.keys.append(data[start:position].decode())
        elif field == _BORN_HOST:
            message.born_host = data[start:position].decode()
        elif field == _MESSAGE_GROUP:
            message.message_group = data[start:position].decode()
        elif field == _TRACE_CONTEXT:
            message.trace_context = data[start:position].decode()
        elif field == _BORN_TIMESTAMP and not has_born:
            has_born = True
            message.born_timestamp = _read_timestamp(data, start, position)
            if message.born_timestamp < 0:
                return False
        elif field == _DELIVERY_TIMESTAMP and message.delivery_timestamp is None:
            message.delivery_timestamp = due = _read_timestamp(data, start, position)
            if due < 0:
                return False
        else:
            return False
    return position == end


def _read_timestamp(data: bytes, position: int, end: int) -> int:
    """Return a timestamp in ms since 1970, rounded down; -1 for one that is to be read by protobuf."""
    seconds = nanos = 0
    if position < end and data[position] == _SECONDS:
        seconds, position = read_integer(data, position + 1)
    if position < end and data[position] == _NANOS:
        nanos, position = read_integer(data, position + 1)
    if position != end or seconds < 0 or not 0 <= nanos <= _MAX_INT:
        return -1
    return seconds * 1000 + nanos // 1_000_000

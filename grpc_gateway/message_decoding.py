"""Conversion of stored messages to v2 messages, for gRPC clients."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.reserved_properties import HIDDEN_PROPERTIES
from grpc_gateway.wire_encoding import LengthDelimited, Varint
from protos.apache.rocketmq.v2.definition_pb2 import (
    DeadLetterQueue,
    Digest,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from remoting import messages, properties
from remoting.errors import BodyError
from remoting.frame import MAX_FRAME
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, SysFlag

# Fields of the contract, by the names that they have there.


def _field(message: Any, name: str) -> LengthDelimited:
    return LengthDelimited(message.fields_by_name[name].number)


def _integer(message: Any, name: str) -> Varint:
    return Varint(message.fields_by_name[name].number)


_MESSAGE: Final = Message.DESCRIPTOR
_TOPIC: Final = _field(_MESSAGE, "topic")
_NAME: Final = _field(Resource.DESCRIPTOR, "name")
_USER_PROPERTY: Final = _field(_MESSAGE, "user_properties")
_ENTRY: Final = _MESSAGE.fields_by_name["user_properties"].message_type
_KEY: Final = _field(_ENTRY, "key")
_VALUE: Final = _field(_ENTRY, "value")
_SYSTEM_PROPERTIES: Final = _field(_MESSAGE, "system_properties")
_BODY: Final = _field(_MESSAGE, "body")
_SYSTEM: Final = SystemProperties.DESCRIPTOR
_TAG: Final = _field(_SYSTEM, "tag")
_KEYS: Final = _field(_SYSTEM, "keys")
_MESSAGE_ID: Final = _field(_SYSTEM, "message_id")
_BORN_TIMESTAMP: Final = _field(_SYSTEM, "born_timestamp")
_BORN_HOST: Final = _field(_SYSTEM, "born_host")
_STORE_TIMESTAMP: Final = _field(_SYSTEM, "store_timestamp")
_STORE_HOST: Final = _field(_SYSTEM, "store_host")
_DELIVERY_TIMESTAMP: Final = _field(_SYSTEM, "delivery_timestamp")
_RECEIPT_HANDLE: Final = _field(_SYSTEM, "receipt_handle")
_QUEUE_ID: Final = _integer(_SYSTEM, "queue_id")
_QUEUE_OFFSET: Final = _integer(_SYSTEM, "queue_offset")
_DELIVERY_ATTEMPT: Final = _integer(_SYSTEM, "delivery_attempt")
_MESSAGE_GROUP: Final = _field(_SYSTEM, "message_group")
_TRACE_CONTEXT: Final = _field(_SYSTEM, "trace_context")
_DEAD_LETTER_QUEUE: Final = _field(_SYSTEM, "dead_letter_queue")
_ORIGIN_TOPIC: Final = _field(DeadLetterQueue.DESCRIPTOR, "topic")
_ORIGIN_MESSAGE_ID: Final = _field(DeadLetterQueue.DESCRIPTOR, "message_id")
_LITE_TOPIC: Final = _field(_SYSTEM, "lite_topic")
_PRIORITY: Final = _integer(_SYSTEM, "priority")
_SECONDS: Final = _integer(Timestamp.DESCRIPTOR, "seconds")
_NANOS: Final = _integer(Timestamp.DESCRIPTOR, "nanos")
_MD5_DIGITS: Final = 32
# The bytes before the digits of a digest.
_DIGEST_START: Final = SystemProperties(
    body_digest=Digest(type=DigestType.MD5, checksum="0" * _MD5_DIGITS)
).SerializeToString()[:-_MD5_DIGITS]
_TYPES: Final = {
    properties.MessageType.NORMAL: MessageType.NORMAL,
    properties.MessageType.FIFO: MessageType.FIFO,
    properties.MessageType.DELAY: MessageType.DELAY,
    properties.MessageType.TRANSACTION: MessageType.TRANSACTION,
    properties.MessageType.PRIORITY: MessageType.PRIORITY,
    properties.MessageType.LITE: MessageType.LITE,
}
# The body's encoding and the message's type.
_ENCODED_TYPES: Final = {
    kind: SystemProperties(body_encoding=Encoding.IDENTITY, message_type=value).SerializeToString()
    for kind, value in _TYPES.items()
}
_DELAY: Final = properties.MessageType.DELAY
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
# The latest time of a Timestamp, ms since 1970 (end of the year 9999); some clients fail on later ones.
_MAX_TIMESTAMP: Final = 253_402_300_799_999
_MAX_INT: Final = 2**31 - 1
# Digits of a decimal number that fits 64 bits.
_MAX_DIGITS: Final = 19


def from_stored(
    stored: StoredMessage,
    *,
    topic: str,
    receipt_handle: str | None = None,
    delivery_attempt: int = 1,
    max_body: int = MAX_FRAME,
) -> Message:
    """Return the v2 form of a stored message; the parameters are those of `encode_stored`."""
    return Message.FromString(encode_stored(stored, topic, receipt_handle, delivery_attempt, max_body))


def encode_stored(
    stored: StoredMessage,
    topic: str,
    receipt_handle: str | None = None,
    delivery_attempt: int = 1,
    max_body: int = MAX_FRAME,
) -> bytes:
    """Return the v2 form of a stored message, encoded: an object of it would take five times as long.

    topic: the client's topic, also for a message of a retry topic. max_body: maximum size of the decompressed body.
    The body is decompressed: clients know no codec but gzip, and some only one of zlib and gzip. A body that cannot
    be decompressed, or is larger than `max_body` bytes decompressed, is delivered as it is stored, so that it does not
    block its queue. For the same reason a property that cannot be represented is left out instead of raising: any
    producer may have written it.
    """
    body = _decompressed_body(stored, max_body)
    system = _encode_system_properties(stored, body, receipt_handle, delivery_attempt)
    parts = [_TOPIC.message(_NAME.text(topic))]
    for name, value in stored.property_map.items():
        if name not in HIDDEN_PROPERTIES:
            parts.append(_USER_PROPERTY.message(_KEY.text(name) + _VALUE.text(value)))
    parts += (_SYSTEM_PROPERTIES.start(len(system)), system)
    if body:
        parts += (_BODY.start(len(body)), body)
    return b"".join(parts)


def _encode_system_properties(
    stored: StoredMessage, body: bytes, receipt_handle: str | None, delivery_attempt: int
) -> bytes:
    found = stored.property_map
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    message_id = found.get(properties.UNIQ_CLIENT_MESSAGE_ID) or offset_message_id(stored)
    kind = properties.message_type(found)
    parts: list[bytes] = []
    if (tag := found.get(properties.TAGS)) is not None:
        parts.append(_TAG.text(tag))
    if (keys := found.get(properties.KEYS)) is not None:
        parts += [_KEYS.text(key) for key in _split_keys(keys)]
    parts += (
        _MESSAGE_ID.text(message_id),
        _DIGEST_START,
        digest.encode(),
        _ENCODED_TYPES[kind],
        _BORN_TIMESTAMP.message(_encode_timestamp(stored.born_timestamp)),
        _BORN_HOST.text(_born_host(stored, found)),
        _STORE_TIMESTAMP.message(_encode_timestamp(stored.store_timestamp)),
        _STORE_HOST.text(_format_host(stored.store_host)),
    )
    due = _number(found.get(properties.TIMER_DELIVER_MS))
    if due is None and kind is _DELAY:
        # Delayed by a duration: only the broker has computed the time (HookUtils.transformTimerMessage).
        due = _number(found.get(properties.TIMER_OUT_MS))
    if due is not None:
        parts.append(_DELIVERY_TIMESTAMP.message(_encode_timestamp(due)))
    if receipt_handle is not None:
        parts.append(_RECEIPT_HANDLE.text(receipt_handle))
    parts += (
        _QUEUE_ID.value(stored.queue_id),
        _QUEUE_OFFSET.value(stored.queue_offset),
        _DELIVERY_ATTEMPT.value(min(delivery_attempt, _MAX_INT)),
    )
    if (group := found.get(properties.SHARDING_KEY)) is not None:
        parts.append(_MESSAGE_GROUP.text(group))
    if (context := found.get(properties.TRACE_CONTEXT)) is not None:
        parts.append(_TRACE_CONTEXT.text(context))
    if (origin := found.get(properties.DLQ_ORIGIN_TOPIC)) is not None:
        origin_id = found.get(properties.DLQ_ORIGIN_MESSAGE_ID, "")
        parts.append(_DEAD_LETTER_QUEUE.message(_ORIGIN_TOPIC.text(origin) + _ORIGIN_MESSAGE_ID.text(origin_id)))
    if (lite_topic := found.get(properties.LITE_TOPIC)) is not None:
        parts.append(_LITE_TOPIC.text(lite_topic))
    if (priority := _number(found.get(properties.PRIORITY))) is not None and priority <= _MAX_INT:
        parts.append(_PRIORITY.value(priority))
    return b"".join(parts)


def offset_message_id(stored: StoredMessage) -> str:
    """Return the broker's own message id, for a message without an id of its producer."""
    return str(OffsetMessageId(*stored.store_host, stored.commit_log_offset))


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time in ms since 1970, limited to the range of Timestamp."""
    return Timestamp.FromString(_encode_timestamp(milliseconds))


def _encode_timestamp(milliseconds: int) -> bytes:
    limited = max(0, min(milliseconds, _MAX_TIMESTAMP))
    return _SECONDS.value(limited // 1000) + _NANOS.value(limited % 1000 * 1_000_000)


def is_compressed(stored: StoredMessage) -> bool:
    return bool(stored.sys_flag & _COMPRESSED)


def _decompressed_body(stored: StoredMessage, limit: int) -> bytes:
    if not stored.sys_flag & _COMPRESSED:
        return stored.body
    try:
        return messages.body(stored, limit)
    except BodyError:
        return stored.body


def _split_keys(text: str) -> list[str]:
    """Return the keys of a message as Java splits them: by spaces only, without empty ones at the end."""
    if " " not in text:
        return [text]
    keys = text.rstrip(" ")
    return keys.split(" ") if keys else []


def _born_host(stored: StoredMessage, found: Mapping[str, str]) -> str:
    """Return the host that the producer has named, or else its address without the port, as the official proxy does."""
    named = found.get(properties.BORN_HOST)
    return stored.born_host[0] if not named or named.isspace() else named


def _format_host(host: tuple[str, int]) -> str:
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _number(value: str | None) -> int | None:
    if value is None or len(value) > _MAX_DIGITS or not value.isdecimal():
        return None
    return int(value)

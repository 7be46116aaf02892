"""Conversion of stored messages to v2 messages, for gRPC clients."""

import hashlib
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.reserved_properties import RESERVED_PROPERTIES
from protos.apache.rocketmq.v2.definition_pb2 import DigestType, Encoding, Message, MessageType
from remoting import messages, properties
from remoting.errors import BodyError
from remoting.frame import MAX_FRAME
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, SysFlag

_TYPES: Final = {
    properties.MessageType.NORMAL: MessageType.NORMAL,
    properties.MessageType.FIFO: MessageType.FIFO,
    properties.MessageType.DELAY: MessageType.DELAY,
    properties.MessageType.TRANSACTION: MessageType.TRANSACTION,
    properties.MessageType.PRIORITY: MessageType.PRIORITY,
    properties.MessageType.LITE: MessageType.LITE,
}
# Constants, since a look-up of an enum value in generated code takes as long as the rest of its statement.
_MD5: Final = DigestType.MD5
_IDENTITY: Final = Encoding.IDENTITY
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
    """Return the v2 form of a stored message; the parameters are those of `message_fields`."""
    return Message(
        **message_fields(
            stored, topic=topic, receipt_handle=receipt_handle, delivery_attempt=delivery_attempt, max_body=max_body
        )
    )


def message_fields(
    stored: StoredMessage,
    *,
    topic: str,
    receipt_handle: str | None = None,
    delivery_attempt: int = 1,
    max_body: int = MAX_FRAME,
) -> dict[str, Any]:
    """Return the fields of the v2 form of a stored message; dictionaries stand for its parts.

    A message that is made of them at once, or a response with them as its message, takes half the time of one that is
    made of messages: protobuf encodes and decodes each part that it is given as a message, with its body.

    topic: the client's topic, also for a message of a retry topic. max_body: maximum size of the decompressed body.
    The body is decompressed: clients know no codec but gzip, and some only one of zlib and gzip. A body that cannot
    be decompressed, or is larger than `max_body` bytes decompressed, is delivered as it is stored, so that it does not
    block its queue. For the same reason a property
    that cannot be represented is left out instead of raising: any producer may have written it.
    """
    stored_properties = stored.property_map
    body = _decompressed_body(stored, max_body)
    system: dict[str, Any] = {
        "message_id": stored_properties.get(properties.UNIQ_CLIENT_MESSAGE_ID) or offset_message_id(stored),
        "body_digest": {"type": _MD5, "checksum": hashlib.md5(body, usedforsecurity=False).hexdigest().upper()},
        "body_encoding": _IDENTITY,
        "message_type": _TYPES[properties.message_type(stored_properties)],
        "born_timestamp": _timestamp(stored.born_timestamp),
        "born_host": stored_properties.get(properties.BORN_HOST) or _format_host(stored.born_host),
        "store_timestamp": _timestamp(stored.store_timestamp),
        "store_host": _format_host(stored.store_host),
        "queue_id": stored.queue_id,
        "queue_offset": stored.queue_offset,
        "delivery_attempt": min(delivery_attempt, _MAX_INT),
    }
    if receipt_handle is not None:
        system["receipt_handle"] = receipt_handle
    if keys := stored_properties.get(properties.KEYS):
        system["keys"] = keys.split()
    for name, setter in _SETTERS.items():
        value = stored_properties.get(name)
        if value is not None:
            setter(system, value)
    origin = stored_properties.get(properties.DLQ_ORIGIN_TOPIC)
    if origin is not None:
        system["dead_letter_queue"] = {
            "topic": origin,
            "message_id": stored_properties.get(properties.DLQ_ORIGIN_MESSAGE_ID, ""),
        }
    user = {name: value for name, value in stored_properties.items() if name not in RESERVED_PROPERTIES}
    return {"topic": {"name": topic}, "user_properties": user, "system_properties": system, "body": body}


def offset_message_id(stored: StoredMessage) -> str:
    """Return the broker's own message id, for a message without an id of its producer."""
    return str(OffsetMessageId(*stored.store_host, stored.commit_log_offset))


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time in ms since 1970, limited to the range of Timestamp."""
    return Timestamp(**_timestamp(milliseconds))


def _timestamp(milliseconds: int) -> dict[str, int]:
    seconds, rest = divmod(max(0, min(milliseconds, _MAX_TIMESTAMP)), 1000)
    return {"seconds": seconds, "nanos": rest * 1_000_000}


def is_compressed(stored: StoredMessage) -> bool:
    return bool(stored.sys_flag & _COMPRESSED)


def _decompressed_body(stored: StoredMessage, limit: int) -> bytes:
    if not stored.sys_flag & _COMPRESSED:
        return stored.body
    try:
        return messages.body(stored, limit)
    except BodyError:
        return stored.body


def _format_host(host: tuple[str, int]) -> str:
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _set_delivery_timestamp(system: dict[str, Any], value: str) -> None:
    number = _number(value)
    if number is not None:
        system["delivery_timestamp"] = _timestamp(number)


def _set_priority(system: dict[str, Any], value: str) -> None:
    number = _number(value)
    if number is not None and number <= _MAX_INT:
        system["priority"] = number


def _number(value: str) -> int | None:
    return int(value) if value.isdecimal() and len(value) <= _MAX_DIGITS else None


def _text_setter(field: str) -> Callable[[dict[str, Any], str], None]:
    return lambda system, value: system.__setitem__(field, value)


# Stored properties that are fields of SystemProperties.
_SETTERS: Final[dict[str, Callable[[dict[str, Any], str], None]]] = {
    properties.TAGS: _text_setter("tag"),
    properties.SHARDING_KEY: _text_setter("message_group"),
    properties.TRACE_CONTEXT: _text_setter("trace_context"),
    properties.LITE_TOPIC: _text_setter("lite_topic"),
    properties.PRIORITY: _set_priority,
    properties.TIMER_DELIVER_MS: _set_delivery_timestamp,
}

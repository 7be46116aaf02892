"""Conversion of v2 messages to the properties, body and flags that brokers store."""

import zlib
from collections.abc import Callable, Iterable
from typing import Final

from grpc_gateway import validation
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.reserved_properties import RESERVED_PROPERTIES
from grpc_gateway.response_status import Refused
from grpc_gateway.sent_message import SentMessage
from protos.apache.rocketmq.v2.definition_pb2 import Code, Encoding, MessageType
from remoting import properties
from remoting.messages import SysFlag

# Constants, since a look-up of an enum value in generated code takes as long as the rest of its statement.
_GZIP: Final = Encoding.GZIP
_TRANSACTION: Final = MessageType.TRANSACTION
# For every message: reading a member from its enum is slow.
_NORMAL: Final = properties.MessageType.NORMAL
_FIFO: Final = properties.MessageType.FIFO
_TRANSACTIONAL: Final = properties.MessageType.TRANSACTION
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
# zlib's window bits for both formats, which differ in their headers: the C++ producer of rocketmq-clients declares GZIP
# and compresses in the zlib format.
_GZIP_OR_ZLIB_WINDOW_BITS: Final = 47
_ZLIB_FLAG: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
# The method deflate with a window of 32 KiB, which is gzip's, at the default level (RFC 1950 section 2.2).
_ZLIB_HEADER: Final = b"\x78\x9c"
_GZIP_MAGIC: Final = b"\x1f\x8b"
# Checksum and size of the plain data.
_GZIP_TRAILER_SIZE: Final = 8
# Flags of the optional parts of gzip's header.
_GZIP_HEADER_CRC: Final = 2
_GZIP_EXTRA: Final = 4
_GZIP_NAME: Final = 8
_GZIP_COMMENT: Final = 16


def message_type(message: SentMessage) -> properties.MessageType:
    """Return the type of a message from its system properties.

    The client's `message_type` is used for transactions only.
    """
    if message.message_type == _TRANSACTION:
        return _TRANSACTIONAL
    if message.delivery_timestamp is not None:
        return properties.MessageType.DELAY
    if message.lite_topic:
        return properties.MessageType.LITE
    if message.message_group:
        return _FIFO
    if message.priority is not None:
        return properties.MessageType.PRIORITY
    return _NORMAL


def encode_properties(message: SentMessage, kind: properties.MessageType, now: float, options: GatewayOptions) -> str:
    """Return the property string that a message is stored with. Raises Refused.

    now: seconds since 1970.
    """
    user, tag, keys, message_id = message.user_properties, message.tag, message.keys, message.message_id
    group, context, host = message.message_group, message.trace_context, message.born_host
    pairs: list[str] = []
    # The texts whose size is limited together: names and values of the user properties, tag and keys.
    limited = _user_texts(user, context, pairs, options) if user else []
    limited += (tag, *keys)
    text = "".join(limited)
    if not f"{text}{message_id}{context}{host}".isprintable():
        _check_controls(user, (("message id", message_id), ("trace_context", context), ("born_host", host)))
    if tag:
        validation.tag(tag)
        pairs.append(f"{properties.TAGS}\x01{tag}\x02")
    if keys:
        validation.keys(keys)
        pairs.append(f"{properties.KEYS}\x01{' '.join(keys)}\x02")
    # A character has at most four bytes, so most texts need not be encoded.
    if len(text) * 4 > options.max_properties and len(text.encode()) > options.max_properties:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {options.max_properties}",
        )
    if not message_id or message_id.isspace():
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    pairs.append(f"{properties.UNIQ_CLIENT_MESSAGE_ID}\x01{message_id}\x02")
    if group:
        validation.message_group(group)
        pairs.append(f"{properties.SHARDING_KEY}\x01{group}\x02")
    if context:
        pairs.append(f"{properties.TRACE_CONTEXT}\x01{context}\x02")
    if host:
        pairs.append(f"{properties.BORN_HOST}\x01{host}\x02")
    if kind is not _NORMAL and kind in _TYPE_PROPERTIES:
        pairs += _TYPE_PROPERTIES[kind](message, now, options)
    return "".join(pairs)


def encode_body(message: SentMessage, options: GatewayOptions) -> tuple[bytes, int]:
    """Return the body as it is stored, and its bits of the sys flag. Raises Refused.

    A gzip body is converted to zlib: RocketMQ has no gzip codec, and remoting consumers would read gzip as zlib. A body
    that is declared as gzip and is neither is stored as it is, and so delivered.
    """
    body = message.body
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > options.max_body:
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {options.max_body}")
    if message.body_encoding != _GZIP:
        return body, 0
    packed = _to_zlib(body, options.max_body)
    return (body, 0) if packed is None else (packed, _ZLIB_FLAG)


def sys_flag(kind: properties.MessageType, body_flag: int) -> int:
    """Return the sys flag of a message of this type; `body_flag` is from `encode_body`."""
    return body_flag | _PREPARED if kind is _TRANSACTIONAL else body_flag


def _to_zlib(body: bytes, max_size: int) -> bytes | None:
    """Return a gzip or zlib body as a zlib stream, or None if it is not valid or truncated.

    Both formats have the same compressed data (RFC 1950, RFC 1952), which would take ten times as long to compress
    again as to decompress. The size limit also applies to the decompressed body, since consumers decompress it too.
    """
    codec = zlib.decompressobj(wbits=_GZIP_OR_ZLIB_WINDOW_BITS)
    try:
        plain = codec.decompress(body, max_size + 1)
    except zlib.error:
        return None
    if len(plain) > max_size:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"the decompressed message body is larger than the maximum of {max_size} bytes"
        )
    if not codec.eof:
        return None
    end = len(body) - len(codec.unused_data)
    if not body.startswith(_GZIP_MAGIC):
        return body[:end]
    return _ZLIB_HEADER + body[_gzip_header_size(body) : end - _GZIP_TRAILER_SIZE] + zlib.adler32(plain).to_bytes(4)


def _gzip_header_size(body: bytes) -> int:
    """Return the size of the header of valid gzip data (RFC 1952 section 2.3)."""
    flags, size = body[3], 10
    if flags & _GZIP_EXTRA:
        size += 2 + int.from_bytes(body[size : size + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            size = body.index(0, size) + 1
    return size + 2 if flags & _GZIP_HEADER_CRC else size


def _user_texts(user: dict[str, str], system_context: str, pairs: list[str], options: GatewayOptions) -> list[str]:
    """Return the names and values of the user properties, and add their encoding to `pairs`."""
    if len(user) > options.max_property_count:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {options.max_property_count}"
        )
    texts: list[str] = []
    for name, value in user.items():
        if not name:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the name of a user property must not be empty")
        if name in RESERVED_PROPERTIES:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        texts += (name, value)
        # An empty value cannot be stored. The system property takes the place of a copied one.
        if value and not (system_context and name == properties.TRACE_CONTEXT):
            pairs.append(f"{name}\x01{value}\x02")
    return texts


def _check_controls(user: dict[str, str], others: Iterable[tuple[str, str]]) -> None:
    """Reject control characters in the user properties and in the other named texts."""
    for name, value in user.items():
        _check_characters("the key of property", name)
        _check_characters("the value of property", value)
    for field, text in others:
        code = Code.ILLEGAL_MESSAGE_ID if field == "message id" else Code.ILLEGAL_MESSAGE_PROPERTY_KEY
        _check_characters(field, text, code)


def _check_characters(field: str, text: str, code: Code = Code.ILLEGAL_MESSAGE_PROPERTY_KEY) -> None:
    if validation.has_control(text):
        raise Refused(code, f"{field} cannot contain control character")


# Properties of the message types.


def _transaction_properties(message: SentMessage, now: float, options: GatewayOptions) -> list[str]:
    # Transaction checks go to a producer of the group that the half message names. gRPC producers have no group, so
    # the topic is their group (as in the official proxy).
    pairs = [
        f"{properties.TRANSACTION_PREPARED}\x01true\x02",
        f"{properties.PRODUCER_GROUP}\x01{message.topic}\x02",
    ]
    seconds = message.recovery_seconds
    if seconds is not None:
        if seconds > options.recovery_limit:
            raise Refused(
                Code.BAD_REQUEST,
                f"the max transaction recovery time of message is too large, max is {options.recovery_limit:.0f}",
            )
        if seconds < 0:
            raise Refused(Code.BAD_REQUEST, f"the transaction recovery time must not be negative: {seconds} s")
        if seconds:
            pairs.append(f"{properties.CHECK_IMMUNITY_TIME_IN_SECONDS}\x01{seconds}\x02")
    return pairs


def _delay_properties(message: SentMessage, now: float, options: GatewayOptions) -> list[str]:
    due = message.delivery_timestamp
    assert due is not None
    if due > (now + options.max_delay) * 1000:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {options.max_delay * 1000:.0f}",
        )
    return [f"{properties.TIMER_DELIVER_MS}\x01{max(due, 1)}\x02"]


def _lite_properties(message: SentMessage, now: float, options: GatewayOptions) -> list[str]:
    name = validation.lite_topic(message.lite_topic, options)
    return [f"{properties.LITE_TOPIC}\x01{name}\x02"]


def _priority_properties(message: SentMessage, now: float, options: GatewayOptions) -> list[str]:
    priority = message.priority
    assert priority is not None
    if priority < 0:
        raise Refused(Code.BAD_REQUEST, f"priority must not be negative: {priority}")
    return [f"{properties.PRIORITY}\x01{priority}\x02"]


_TYPE_PROPERTIES: Final[dict[properties.MessageType, Callable[[SentMessage, float, GatewayOptions], list[str]]]] = {
    properties.MessageType.TRANSACTION: _transaction_properties,
    properties.MessageType.DELAY: _delay_properties,
    properties.MessageType.LITE: _lite_properties,
    properties.MessageType.PRIORITY: _priority_properties,
}

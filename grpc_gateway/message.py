"""Messages: the v2 form of what brokers store, and the properties that a v2 message is stored with."""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway import validation
from grpc_gateway.options import Options
from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Code,
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
from remoting.compression import CompressionType
from remoting.errors import BodyError
from remoting.frame import MAX_FRAME
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, SysFlag

# Property names that are RocketMQ's own (MessageConst): no client may set one of them as its property, and none is
# shown as a user's property.
RESERVED = frozenset(
    (
        "TRACE_ON",
        "MSG_REGION",
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "ORIGIN_GROUP",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "UNIQ_KEY",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "INNER_BASE",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__CRC32#",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "REDIRECT",
        "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
    )
)
_TYPES = {
    properties.MessageType.NORMAL: MessageType.NORMAL,
    properties.MessageType.FIFO: MessageType.FIFO,
    properties.MessageType.DELAY: MessageType.DELAY,
    properties.MessageType.TRANSACTION: MessageType.TRANSACTION,
    properties.MessageType.PRIORITY: MessageType.PRIORITY,
    properties.MessageType.LITE: MessageType.LITE,
}
# At hand: looking an enum's name up in the generated code takes as long as the rest of a line.
_MD5, _IDENTITY, _GZIP = DigestType.MD5, Encoding.IDENTITY, Encoding.GZIP
_TRANSACTION = MessageType.TRANSACTION
_COMPRESSED = int(SysFlag.COMPRESSED)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
# The last moment that a Timestamp can be, ms since 1970; beyond, some clients fail.
_LATEST = 253_402_300_799_999
_MAX_INT = 2**31 - 1


# What is stored, for a gRPC client.


def of_stored(
    stored: StoredMessage,
    *,
    topic: str,
    receipt_handle: str | None = None,
    delivery_attempt: int = 1,
    invisible_time: int | None = None,
) -> Message:
    """The v2 form of a stored message.

    topic: as the client knows it; a message of a retry topic is shown under its own. invisible_time: ms.
    The body is unpacked, as clients know no codec but gzip (and some only one of zlib and gzip). One that cannot be
    unpacked is handed on as it is stored: its consumer shall decide, and it may not block its queue. For the same
    reason nothing raises that anybody may have written into a property: what cannot be shown is left out.
    """
    known = stored.property_map
    body = _body(stored)
    system = SystemProperties(
        message_id=known.get(properties.UNIQ_CLIENT_MESSAGE_ID) or offset_id(stored),
        body_digest=Digest(type=_MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=_IDENTITY,
        message_type=_TYPES[properties.message_type(known)],
        born_timestamp=timestamp(stored.born_timestamp),
        born_host=known.get(properties.BORN_HOST) or _host(stored.born_host),
        store_timestamp=timestamp(stored.store_timestamp),
        store_host=_host(stored.store_host),
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        delivery_attempt=min(delivery_attempt, _MAX_INT),
        receipt_handle=receipt_handle,
    )
    if keys := known.get(properties.KEYS):
        system.keys.extend(keys.split())
    if invisible_time is not None:
        system.invisible_duration.FromMilliseconds(invisible_time)
    for name, show in _SHOWN.items():
        value = known.get(name)
        if value is not None:
            show(system, value)
    origin = known.get(properties.DLQ_ORIGIN_TOPIC)
    if origin is not None:
        system.dead_letter_queue.CopyFrom(
            DeadLetterQueue(topic=origin, message_id=known.get(properties.DLQ_ORIGIN_MESSAGE_ID, ""))
        )
    own = {name: value for name, value in known.items() if name not in RESERVED}
    return Message(topic=Resource(name=topic), user_properties=own, system_properties=system, body=body)


def offset_id(stored: StoredMessage) -> str:
    """The broker's own id of a message; what one has that its producer gave none."""
    return str(OffsetMessageId(*stored.store_host, stored.commit_log_offset))


def timestamp(milliseconds: int) -> Timestamp:
    """A time in ms since 1970; the nearest there is where that is no time."""
    seconds, rest = divmod(max(0, min(milliseconds, _LATEST)), 1000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000_000)


def _body(stored: StoredMessage) -> bytes:
    if not stored.sys_flag & _COMPRESSED:
        return stored.body
    try:
        # What no client could have sent as it is, is somebody's trick: a batch of such would take gigabytes.
        return messages.body(stored, MAX_FRAME)
    except BodyError:
        return stored.body


def _host(host: tuple[str, int]) -> str:
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _delivered(system: SystemProperties, value: str) -> None:
    number = _number(value)
    if number is not None:
        system.delivery_timestamp.CopyFrom(timestamp(number))


def _priority(system: SystemProperties, value: str) -> None:
    number = _number(value)
    if number is not None and number <= _MAX_INT:
        system.priority = number


def _number(value: str) -> int | None:
    # As long as a number of 64 bits may be.
    return int(value) if value.isdecimal() and len(value) < 20 else None


def _text(name: str) -> Callable[[SystemProperties, str], None]:
    return lambda system, value: setattr(system, name, value)


# Properties that have a field of their own.
_SHOWN: dict[str, Callable[[SystemProperties, str], None]] = {
    properties.TAGS: _text("tag"),
    properties.SHARDING_KEY: _text("message_group"),
    properties.TRACE_CONTEXT: _text("trace_context"),
    properties.LITE_TOPIC: _text("lite_topic"),
    properties.PRIORITY: _priority,
    properties.TIMER_DELIVER_MS: _delivered,
}


# What a gRPC client sends, for the brokers.


def type_of(message: Message) -> properties.MessageType:
    """What a message is by what it says; `message_type` alone makes it nothing but a transaction's."""
    system = message.system_properties
    if system.message_type == _TRANSACTION:
        return properties.MessageType.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return properties.MessageType.DELAY
    if system.lite_topic:
        return properties.MessageType.LITE
    if system.message_group:
        return properties.MessageType.FIFO
    if system.HasField("priority"):
        return properties.MessageType.PRIORITY
    return properties.MessageType.NORMAL


def to_properties(message: Message, kind: properties.MessageType, now: float, options: Options) -> str:
    """The property string that a message is stored with; `now` is in seconds since 1970. Raises Refused."""
    # Each look at a field makes its value anew.
    system = message.system_properties
    own, tag, keys, message_id = message.user_properties, system.tag, system.keys, system.message_id
    pairs = _user_pairs(own, options) if own else []
    if tag:
        validation.tag(tag)
        pairs.append(f"{properties.TAGS}\x01{tag}\x02")
    if keys:
        validation.keys(keys)
        pairs.append(f"{properties.KEYS}\x01{' '.join(keys)}\x02")
    if pairs:
        _bounded("".join(pairs), options)
    if not message_id or message_id.isspace() or validation.has_control(message_id):
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "the message id is blank or has control characters")
    pairs.append(f"{properties.UNIQ_CLIENT_MESSAGE_ID}\x01{message_id}\x02")
    if group := system.message_group:
        validation.message_group(group)
        pairs.append(f"{properties.SHARDING_KEY}\x01{group}\x02")
    if context := system.trace_context:
        _clean("trace context", context)
        pairs.append(f"{properties.TRACE_CONTEXT}\x01{context}\x02")
    if host := system.born_host:
        _clean("born host", host)
        pairs.append(f"{properties.BORN_HOST}\x01{host}\x02")
    special = _SPECIAL.get(kind)
    if special is not None:
        pairs += special(message, now, options)
    return "".join(pairs)


def to_body(message: Message, options: Options) -> tuple[bytes, int]:
    """The body as it is stored, and the bits of its sys flag. Raises Refused.

    gzip is no codec of RocketMQ's: remoting consumers would take it for zlib, so that is what it becomes.
    """
    body = message.body
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > options.max_body:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body has {len(body)} bytes, at most {options.max_body} are allowed"
        )
    if message.system_properties.body_encoding != _GZIP:
        return body, 0
    return messages.compress(_gunzip(body, options.max_body), CompressionType.ZLIB)


def _gunzip(body: bytes, most: int) -> bytes:
    """The body unpacked, at most as large as one may come unpacked: whoever consumes it unpacks it too."""
    codec = zlib.decompressobj(wbits=31)
    try:
        plain = codec.decompress(body, most + 1)
    except zlib.error:
        raise Refused(Code.MESSAGE_CORRUPTED, "the body says that it is gzip, which it is not") from None
    if len(plain) > most:
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"the gzip body unpacks to more than the {most} bytes allowed")
    if not codec.eof:
        raise Refused(Code.MESSAGE_CORRUPTED, "the gzip body is cut off")
    return plain


def _user_pairs(own: Any, options: Options) -> list[str]:
    if len(own) > options.max_property_count:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"there are {len(own)} properties, at most {options.max_property_count} are allowed",
        )
    pairs = []
    for name, value in own.items():
        if not name or name in RESERVED:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"{name or 'an empty name'} is no name for a property")
        if validation.has_control(name) or validation.has_control(value):
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "a property must not have control characters")
        # An empty value cannot be stored.
        if value:
            pairs.append(f"{name}\x01{value}\x02")
    return pairs


def _bounded(text: str, options: Options) -> None:
    # A character is at most four bytes; mostly there is nothing to count.
    if len(text) * 4 > options.max_properties and len(text.encode()) > options.max_properties:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys together have at most {options.max_properties} bytes",
        )


def _clean(what: str, text: str) -> None:
    if validation.has_control(text):
        raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the {what} must not have control characters")


def _transaction(message: Message, now: float, options: Options) -> list[str]:
    # Transaction checks look for a producer in the group that the half message names: gRPC producers have none, so
    # their group is the topic (as the official proxy has it).
    pairs = [
        f"{properties.TRANSACTION_PREPARED}\x01true\x02",
        f"{properties.PRODUCER_GROUP}\x01{message.topic.name}\x02",
    ]
    system = message.system_properties
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if not 0 <= seconds <= options.recovery_limit:
            raise Refused(
                Code.BAD_REQUEST,
                f"orphaned_transaction_recovery_duration is at most {options.recovery_limit:g} s, not {seconds} s",
            )
        if seconds:
            pairs.append(f"{properties.CHECK_IMMUNITY_TIME_IN_SECONDS}\x01{seconds}\x02")
    return pairs


def _delay(message: Message, now: float, options: Options) -> list[str]:
    due = validation.milliseconds(message.system_properties.delivery_timestamp)
    if due > (now + options.max_delay) * 1000:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME, f"a delivery may be set at most {options.max_delay:g} s ahead, not at {due} ms"
        )
    return [f"{properties.TIMER_DELIVER_MS}\x01{max(due, 1)}\x02"]


def _lite(message: Message, now: float, options: Options) -> list[str]:
    name = validation.lite_topic(message.system_properties.lite_topic, options)
    return [f"{properties.LITE_TOPIC}\x01{name}\x02"]


def _prioritised(message: Message, now: float, options: Options) -> list[str]:
    priority = message.system_properties.priority
    if priority < 0:
        raise Refused(Code.BAD_REQUEST, f"a priority is not negative: {priority}")
    return [f"{properties.PRIORITY}\x01{priority}\x02"]


_SPECIAL: dict[properties.MessageType, Callable[[Message, float, Options], list[str]]] = {
    properties.MessageType.TRANSACTION: _transaction,
    properties.MessageType.DELAY: _delay,
    properties.MessageType.LITE: _lite,
    properties.MessageType.PRIORITY: _prioritised,
}


def sys_flag(kind: properties.MessageType, body_flag: int) -> int:
    """The sys flag of a message of this type."""
    return body_flag | _PREPARED if kind is properties.MessageType.TRANSACTION else body_flag

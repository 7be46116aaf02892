"""The property string of a message: `key \\x01 value \\x02`, repeated (RocketMQ's MessageDecoder)."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Final

from remoting.errors import BodyError

_NAME_VALUE: Final = "\x01"
_PAIR: Final = "\x02"
# Bytes of a property string to which the proxy adds nothing: brokers add properties too, and refuse over 32,767 bytes.
_EXTENDABLE_LENGTH: Final = 30_000

# Well-known keys, named after MessageConst.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT_STORE_MSG_OK: Final = "WAIT"
DELAY_TIME_LEVEL: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
UNIQ_CLIENT_MESSAGE_ID: Final = "UNIQ_KEY"
INSTANCE_ID: Final = "INSTANCE_ID"
CLUSTER: Final = "CLUSTER"
CORRELATION_ID: Final = "CORRELATION_ID"
MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
LITE_TOPIC: Final = "__LITE_TOPIC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"


class MessageType(StrEnum):
    """Type of a message, or type that a topic accepts (RocketMQ's TopicMessageType).

    UNSPECIFIED and MIXED apply to topics only.
    """

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    LITE = "LITE"
    MIXED = "MIXED"


# Message types by the first of these keys that a message has.
_TYPES: Final = (
    (DELAY_TIME_LEVEL, MessageType.DELAY),
    (TIMER_DELIVER_MS, MessageType.DELAY),
    (TIMER_DELAY_SEC, MessageType.DELAY),
    (TIMER_DELAY_MS, MessageType.DELAY),
    (LITE_TOPIC, MessageType.LITE),
    (SHARDING_KEY, MessageType.FIFO),
    (PRIORITY, MessageType.PRIORITY),
)


def decode(text: str) -> dict[str, str]:
    """Decode a property string. Never raises.

    Like in Java, the last separator may be missing, pairs without a key or a value are dropped, the last pair of a key
    wins, and a value may contain \\x01.
    """
    pairs = (pair.partition(_NAME_VALUE) for pair in text.split(_PAIR))
    return {key: value for key, _, value in pairs if key and value}


def encode(properties: Mapping[str, str]) -> str:
    """Encode properties as a property string, without those that have an empty value.

    Raises BodyError if a key or a value contains a separator, which would inject further properties.
    """
    parts = []
    for key, value in properties.items():
        if not key or _NAME_VALUE in key or _PAIR in key or _PAIR in value:
            raise BodyError(f"a property's name or value has a separator in it: {key[:40]!r}")
        if value:
            parts.append(f"{key}{_NAME_VALUE}{value}{_PAIR}")
    return "".join(parts)


def is_extendable(text: str) -> bool:
    """Return whether the proxy may add a property to a property string."""
    # Most are ASCII, whose bytes need not be counted.
    return len(text) < _EXTENDABLE_LENGTH and (text.isascii() or len(text.encode()) < _EXTENDABLE_LENGTH)


def append(text: str, key: str, value: str) -> str:
    """Return the property string with one more pair at its end."""
    separator = "" if not text or text.endswith(_PAIR) else _PAIR
    return f"{text}{separator}{key}{_NAME_VALUE}{value}{_PAIR}"


def without(text: str, key: str) -> str:
    """Return encoded properties without one of them."""
    pairs = decode(text)
    pairs.pop(key, None)
    return encode(pairs)


def get(text: str, key: str) -> str | None:
    """Return `decode(text).get(key)`, faster. The key must not contain a separator."""
    name = key + _NAME_VALUE
    end = len(text)
    while (start := text.rfind(name, 0, end)) >= 0:
        if start == 0 or text[start - 1] == _PAIR:
            value = text[start + len(name) :].partition(_PAIR)[0]
            if value:
                return value
        end = start + len(name) - 1
    return None


def message_type(properties: str | Mapping[str, str]) -> MessageType:
    """Return the type of a message by its properties, decoded or not (TopicMessageType of RocketMQ 5.4)."""
    value_of = partial(get, properties) if isinstance(properties, str) else properties.get
    if (value_of(TRANSACTION_PREPARED) or "").lower() == "true":
        return MessageType.TRANSACTION
    for key, kind in _TYPES:
        if value_of(key) is not None:
            return kind
    return MessageType.NORMAL


def java_hash_code(text: str) -> int:
    """Return Java's `String.hashCode`, over UTF-16 units, as a signed number of 32 bits.

    Brokers index tags by it, and producers spread message groups over queues by it.
    """
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code

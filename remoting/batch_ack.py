"""The body of BATCH_ACK_MESSAGE: acknowledged messages by checkpoint, as bit sets."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import orjson

from remoting.errors import BodyError
from remoting.fastjson import load_request
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry, parse_integer, parse_retry

# Far above the few hundred messages that one checkpoint can span.
_MAX_BIT_SET_BYTES = 64 * 1024
# Maximum number of messages that one body acknowledges. Clients and proxies acknowledge those of a few pops.
_MAX_MESSAGES = 4096


@dataclass(frozen=True, slots=True)
class BatchAck:
    """Messages of one checkpoint that are acknowledged together.

    Attributes:
        topic: the topic that was popped.
        retry: whether the messages are from its retry topic.
        start_offset, revive_queue_id, pop_time, invisible_time: as in `ExtraInfo`.
        bits: bit i stands for the message at start_offset + i.
    """

    consumer_group: str
    topic: str
    retry: Retry
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time: int
    invisible_time: int
    bits: int

    def queue_offsets(self) -> Iterator[int]:
        """Yield the queue offsets of the messages, ascending."""
        for index, byte in enumerate(_bit_set_bytes(self.bits)):
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        yield self.start_offset + 8 * index + bit


@dataclass(frozen=True, slots=True)
class BatchAckBody:
    """The body of BATCH_ACK_MESSAGE."""

    broker_name: str
    acks: tuple[BatchAck, ...]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a body. Raises BodyError."""
        value = load_request(data)
        acks = value.get("acks") or []
        if not isinstance(acks, list):
            raise BodyError("the acks of a batch ack are not a list")
        body = cls(_text(value, "brokerName"), tuple(map(_decode_ack, acks)))
        if sum(ack.bits.bit_count() for ack in body.acks) > _MAX_MESSAGES:
            raise BodyError(f"a batch ack of more than {_MAX_MESSAGES} messages")
        return body

    def encode(self) -> bytes:
        """Encode the body with the short names that Java writes."""
        return orjson.dumps({"brokerName": self.broker_name, "acks": [_encode_ack(ack) for ack in self.acks]})


def batch_acks(topic: str, group: str, handles: Iterable[ExtraInfo]) -> tuple[BatchAck, ...]:
    """Group handles of one topic, consumer group and broker by checkpoint. Raises BodyError."""
    acks: dict[tuple[object, ...], BatchAck] = {}
    for handle in handles:
        bit = handle.queue_offset - handle.start_offset
        if not 0 <= bit < 8 * _MAX_BIT_SET_BYTES:
            raise BodyError(f"offset {handle.queue_offset} is outside of a checkpoint from {handle.start_offset}")
        key = handle.retry, handle.queue_id, handle.start_offset, handle.pop_time
        ack = acks.get(key)
        if ack is None:
            ack = BatchAck(
                consumer_group=group,
                topic=topic,
                retry=handle.retry,
                start_offset=handle.start_offset,
                queue_id=handle.queue_id,
                revive_queue_id=handle.revive_queue_id,
                pop_time=handle.pop_time,
                invisible_time=handle.invisible_time,
                bits=0,
            )
        acks[key] = replace(ack, bits=ack.bits | 1 << bit)
    return tuple(acks.values())


# Attribute to its short and long name in JSON.
_JSON_NAMES = {
    "consumer_group": ("c", "consumerGroup"),
    "topic": ("t", "topic"),
    "retry": ("r", "retry"),
    "start_offset": ("so", "startOffset"),
    "queue_id": ("q", "queueId"),
    "revive_queue_id": ("rq", "reviveQueueId"),
    "pop_time": ("pt", "popTime"),
    "invisible_time": ("it", "invisibleTime"),
    "bits": ("b", "bitSet"),
}


def _encode_ack(ack: BatchAck) -> dict[str, object]:
    entry = {short: getattr(ack, name) for name, (short, _) in _JSON_NAMES.items()}
    entry["b"] = base64.b64encode(_bit_set_bytes(ack.bits)).decode()
    return entry


def _decode_ack(value: object) -> BatchAck:
    if not isinstance(value, dict):
        raise BodyError("an ack of a batch ack is not an object")
    ack = {name: value.get(short, value.get(long)) for name, (short, long) in _JSON_NAMES.items()}
    return BatchAck(
        consumer_group=_text(ack, "consumer_group"),
        topic=_text(ack, "topic"),
        retry=parse_retry(_text(ack, "retry")),
        start_offset=_number(ack, "start_offset"),
        queue_id=_number(ack, "queue_id"),
        revive_queue_id=_number(ack, "revive_queue_id"),
        pop_time=_number(ack, "pop_time"),
        invisible_time=_number(ack, "invisible_time"),
        bits=_parse_bits(_text(ack, "bits")),
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise BodyError(f"the {name} of a batch ack is not a string")
    return text


def _number(value: Mapping[str, Any], name: str) -> int:
    """Return a number as fastjson reads it: also from a string, and 0 if it is missing."""
    number = value.get(name)
    if number is None:
        return 0
    return number if type(number) is int else parse_integer(str(number))


def _parse_bits(text: str) -> int:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise BodyError("the bit set of a batch ack is not base64") from None
    if len(raw) > _MAX_BIT_SET_BYTES:
        raise BodyError(f"the bit set of a batch ack has {len(raw)} bytes")
    return int.from_bytes(raw, "little")


def _bit_set_bytes(bits: int) -> bytes:
    """Encode a bit set like Java's BitSet.toByteArray: little-endian, without trailing zeros."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")

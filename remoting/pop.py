"""POP checkpoints: which messages a POP handed out, and how they are acknowledged (RocketMQ's ExtraInfoUtil)."""

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self, TypeVar

import orjson

from remoting import fastjson, properties
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.names import RETRY_PREFIX

# The revive queue of messages that were popped in order.
ORDER_REVIVE_QUEUE = 999
LMQ_PREFIX = "%LMQ%"
_LMQ_SEPARATOR = ","
_LMQ_QUEUE_ID = 0
_QUEUE_OFFSET = "qo"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
# Bytes of a bit set. Far above the few hundred messages that one checkpoint can span.
_LONGEST_BIT_SET = 64 * 1024


class Retry(StrEnum):
    """Which topic a message was popped from: the one asked for, or its group's retry topic of old or new name."""

    NORMAL = "0"
    V1 = "1"
    V2 = "2"


def retry_of(topic: str) -> Retry:
    """What kind of topic a name is. A group name with a `+` in it cannot be told from a new retry topic."""
    if not topic.startswith(RETRY_PREFIX):
        return Retry.NORMAL
    return Retry.V2 if "+" in topic else Retry.V1


def real_topic(topic: str, group: str, retry: Retry) -> str:
    """The topic that a message popped for `topic` came from; ACK and CHANGE_INVISIBLE have to name it."""
    if retry is Retry.NORMAL:
        return topic
    return f"{RETRY_PREFIX}{group}{'_' if retry is Retry.V1 else '+'}{topic}"


_K = TypeVar("_K")
_V = TypeVar("_V")

# One queue of an answer.
QueueKey = tuple[Retry, int]
# One queue, or with an offset one message of it.
OrderKey = tuple[Retry, int, int | None]


def parse_start_offset_info(text: str) -> dict[QueueKey, int]:
    """Where each queue's checkpoint starts: `t queueId offset;…`. Raises BodyError."""
    return _unique((_queue_key(retry, queue), _integer(offset)) for retry, queue, offset in _items(text))


def format_start_offset_info(offsets: Mapping[QueueKey, int]) -> str:
    """Undo `parse_start_offset_info`."""
    return ";".join(f"{retry} {queue_id} {offset}" for (retry, queue_id), offset in offsets.items())


def parse_msg_offset_info(text: str) -> dict[QueueKey, tuple[int, ...]]:
    """The offsets of the messages of each queue: `t queueId offset,offset,…;…`. Raises BodyError."""
    return _unique(
        (_queue_key(retry, queue), tuple(map(_integer, offsets.split(",")))) for retry, queue, offsets in _items(text)
    )


def format_msg_offset_info(offsets: Mapping[QueueKey, Sequence[int]]) -> str:
    """Undo `parse_msg_offset_info`."""
    return ";".join(f"{retry} {queue_id} {','.join(map(str, some))}" for (retry, queue_id), some in offsets.items())


def parse_order_count_info(text: str) -> dict[OrderKey, int]:
    """How often the messages of a queue, or one message, have been handed out before. Raises BodyError.

    Items are `t queueId count` and `t qo<queueId>%<offset> count`.
    """
    return _unique((_order_key(retry, queue), _integer(count)) for retry, queue, count in _items(text))


def format_order_count_info(counts: Mapping[OrderKey, int]) -> str:
    """Undo `parse_order_count_info`."""
    return ";".join(
        f"{retry} {queue_id if offset is None else f'{_QUEUE_OFFSET}{queue_id}%{offset}'} {count}"
        for (retry, queue_id, offset), count in counts.items()
    )


def _items(text: str) -> Iterator[tuple[str, str, str]]:
    for item in text.split(";") if text else ():
        fields = item.split(" ")
        if len(fields) != 3:
            raise BodyError(f"offset information has an item of {len(fields)} fields instead of 3")
        yield fields[0], fields[1], fields[2]


def _unique(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, _V]:
    found: dict[_K, _V] = {}
    for key, value in pairs:
        if key in found:
            raise BodyError("offset information names a queue twice")
        found[key] = value
    return found


def _queue_key(retry: str, queue_id: str) -> QueueKey:
    return _retry(retry), _integer(queue_id)


def _order_key(retry: str, queue: str) -> OrderKey:
    if not queue.startswith(_QUEUE_OFFSET):
        return _retry(retry), _integer(queue), None
    queue_id, _, offset = queue.removeprefix(_QUEUE_OFFSET).partition("%")
    return _retry(retry), _integer(queue_id), _integer(offset)


_RETRIES = {retry.value: retry for retry in Retry}


def _retry(text: str) -> Retry:
    retry = _RETRIES.get(text)
    if retry is None:
        raise BodyError(f"unknown retry flag {text[:40]!r}")
    return retry


def _integer(text: str) -> int:
    # Nearly always it is one, and this is the quicker look.
    if len(text) < 20 and text.isascii() and text.isdecimal():
        return int(text)
    if _INTEGER.fullmatch(text) is None:
        raise BodyError(f"not a number: {text[:40]!r}")
    return int(text)


def _field(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name)
    if text is None:
        raise BodyError(f"the field {name} is missing")
    return _integer(text)


@dataclass(frozen=True, slots=True)
class ExtraInfo:
    """The handle of one popped message: POP_CK of its properties, `extraInfo` of an ACK.

    start_offset: where its checkpoint starts. pop_time: milliseconds since 1970. invisible_time:
    milliseconds from there. queue_offset: the message's own.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: Retry
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a handle. More fields, as in a gRPC receipt handle, are left aside. Raises BodyError."""
        fields = text.split(" ")
        if len(fields) < 8 or not fields[5]:
            raise BodyError(f"extra info of {len(fields)} fields instead of 8, or without a broker name")
        return cls(
            start_offset=_integer(fields[0]),
            pop_time=_integer(fields[1]),
            invisible_time=_integer(fields[2]),
            revive_queue_id=_integer(fields[3]),
            retry=_retry(fields[4]),
            broker_name=fields[5],
            queue_id=_integer(fields[6]),
            queue_offset=_integer(fields[7]),
        )

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @property
    def visible_at(self) -> int:
        """When the message is handed out again unless it has been acknowledged, in milliseconds since 1970."""
        return self.pop_time + self.invisible_time

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order (FIFO)."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def changed(self, fields: Mapping[str, str]) -> Self:
        """The handle that replaces this one, from the answer to CHANGE_MESSAGE_INVISIBLETIME. Raises BodyError."""
        return replace(
            self,
            start_offset=self.queue_offset,
            pop_time=_field(fields, "popTime"),
            invisible_time=_field(fields, "invisibleTime"),
            revive_queue_id=_field(fields, "reviveQid"),
        )


# What a POP answered.


@dataclass(frozen=True, slots=True)
class PoppedMessage:
    """A message with what only the answer to its POP says about it.

    first_pop_time: when it was handed out for the first time, in milliseconds since 1970.
    """

    message: StoredMessage
    extra_info: ExtraInfo
    reconsume_times: int
    first_pop_time: int


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """The response fields of a POP."""

    pop_time: int
    invisible_time: int
    revive_queue_id: int
    start_offsets: Mapping[QueueKey, int]
    msg_offsets: Mapping[QueueKey, Sequence[int]]
    order_counts: Mapping[OrderKey, int]

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        return cls(
            pop_time=_field(fields, "popTime"),
            invisible_time=_field(fields, "invisibleTime"),
            revive_queue_id=_field(fields, "reviveQid"),
            start_offsets=parse_start_offset_info(fields.get("startOffsetInfo", "")),
            msg_offsets=parse_msg_offset_info(fields.get("msgOffsetInfo", "")),
            order_counts=parse_order_count_info(fields.get("orderCountInfo", "")),
        )


def popped(
    messages: Sequence[StoredMessage], topic: str, fields: Mapping[str, str], broker_name: str
) -> list[PoppedMessage]:
    """The messages of a POP's answer with their handles, as Java's client makes them (MQClientAPIImpl).

    topic: the one that was asked for. fields: the answer's ext fields. Raises BodyError.
    """
    checkpoints = _Checkpoints.parse(fields)
    if not checkpoints.start_offsets:
        return _popped_bare(messages, checkpoints, broker_name)
    result = []
    # How many messages of each queue have been seen.
    seen: dict[QueueKey, int] = defaultdict(int)
    for message in messages:
        extra_info = _given(message)
        if extra_info is not None:
            seen[extra_info.retry, message.queue_id] += 1
            result.append(_popped(message, extra_info, checkpoints, message.reconsume_times))
            continue
        name, queue_id, own_offset = _origin(message, topic)
        key = retry_of(name), queue_id
        # The broker names a queue's offsets in the order of its messages.
        offsets, index = checkpoints.msg_offsets.get(key, ()), seen[key]
        seen[key] += 1
        extra_info = ExtraInfo(
            start_offset=_start_offset(checkpoints, key),
            pop_time=checkpoints.pop_time,
            invisible_time=checkpoints.invisible_time,
            revive_queue_id=checkpoints.revive_queue_id,
            retry=key[0],
            broker_name=broker_name,
            queue_id=queue_id,
            queue_offset=offsets[index] if index < len(offsets) else own_offset,
        )
        counts = checkpoints.order_counts
        count = counts.get((*key, own_offset), counts.get((*key, None), 0))
        result.append(_popped(message, extra_info, checkpoints, count if count > 0 else message.reconsume_times))
    return result


def _popped_bare(messages: Sequence[StoredMessage], checkpoints: _Checkpoints, broker_name: str) -> list[PoppedMessage]:
    """Handles where the broker, an old one, gave no start offsets: each topic's queue starts at its first message."""
    starts: dict[tuple[str, int], int] = {}
    result = []
    for message in messages:
        extra_info = ExtraInfo(
            start_offset=starts.setdefault((message.topic, message.queue_id), message.queue_offset),
            pop_time=checkpoints.pop_time,
            invisible_time=checkpoints.invisible_time,
            revive_queue_id=checkpoints.revive_queue_id,
            retry=retry_of(message.topic),
            broker_name=broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
        )
        result.append(_popped(message, extra_info, checkpoints, message.reconsume_times))
    return result


def popped_lite(messages: Sequence[StoredMessage], fields: Mapping[str, str], broker_name: str) -> list[PoppedMessage]:
    """The messages of the answer to a POP_LITE_MESSAGE with their handles (MQClientAPIImpl of RocketMQ 5.5).

    Each is stored in the one queue of its lite topic, and popped in order. Raises BodyError.
    """
    pop_time, invisible_time = _field(fields, "popTime"), _field(fields, "invisibleTime")
    revive_queue_id = _field(fields, "reviveQid")
    items = (fields.get("orderCountInfo") or "").split(";")
    # A list that does not fit says nothing.
    counts = [_lite_count(item) for item in items] if len(items) == len(messages) else [0] * len(messages)
    result = []
    for message, count in zip(messages, counts, strict=True):
        offset = message.get(properties.INNER_MULTI_QUEUE_OFFSET)
        extra_info = ExtraInfo(
            start_offset=0,
            pop_time=pop_time,
            invisible_time=invisible_time,
            revive_queue_id=revive_queue_id,
            retry=Retry.NORMAL,
            broker_name=broker_name,
            queue_id=_LMQ_QUEUE_ID,
            queue_offset=message.queue_offset if offset is None else _integer(offset),
        )
        result.append(PoppedMessage(message, extra_info, count, pop_time))
    return result


def _lite_count(item: str) -> int:
    """How often a message has been handed out before: a bare number, or the last of three fields."""
    fields = item.split(" ")
    return _integer(fields[-1]) if len(fields) in {1, 3} and fields[-1] else 0


def _popped(
    message: StoredMessage, extra_info: ExtraInfo, checkpoints: _Checkpoints, reconsume_times: int
) -> PoppedMessage:
    first_pop_time = message.get(properties.FIRST_POP_TIME)
    # Anybody may have written it: one message must not make the others of the answer unreadable.
    known = first_pop_time is not None and _INTEGER.fullmatch(first_pop_time) is not None
    return PoppedMessage(
        message=message,
        extra_info=extra_info,
        reconsume_times=reconsume_times,
        first_pop_time=int(first_pop_time) if first_pop_time is not None and known else checkpoints.pop_time,
    )


def _given(message: StoredMessage) -> ExtraInfo | None:
    """The handle that the broker has put into a message of a retry topic."""
    text = message.get(properties.POP_CK)
    if text is None:
        return None
    try:
        return ExtraInfo.parse(text)
    except BodyError:
        # Not the broker's. The message must not make the others of the answer unreadable.
        return None


def _start_offset(checkpoints: _Checkpoints, key: QueueKey) -> int:
    try:
        return checkpoints.start_offsets[key]
    except KeyError:
        raise BodyError(f"no start offset for queue {key[1]} of retry flag {key[0]}") from None


def _origin(message: StoredMessage, topic: str) -> tuple[str, int, int]:
    """Topic, queue id and queue offset by which the broker's checkpoint knows a message.

    A message in light message queues (LMQ) is stored once, elsewhere, and lists its queues and its
    offset in each.
    """
    queues = message.get(properties.INNER_MULTI_DISPATCH)
    if queues is None or message.reconsume_times or not topic.startswith(LMQ_PREFIX):
        return message.topic, message.queue_id, message.queue_offset
    names = queues.split(_LMQ_SEPARATOR)
    offsets = (message.get(properties.INNER_MULTI_QUEUE_OFFSET) or "").split(_LMQ_SEPARATOR)
    if topic not in names or len(offsets) != len(names):
        raise BodyError(f"a message of {topic} does not say its offset there")
    return topic, _LMQ_QUEUE_ID, _integer(offsets[names.index(topic)])


# Acknowledging many.


@dataclass(frozen=True, slots=True)
class BatchAck:
    """Messages of one checkpoint that are acknowledged together.

    bits: bit i stands for the message at start_offset + i. Times are as in ExtraInfo. topic is the
    one that was asked for, `retry` says whether the messages are from its retry topic.
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
        """The queue offsets of the messages, ascending."""
        for index, byte in enumerate(_bytes_of(self.bits)):
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
        """Read a body. Raises BodyError."""
        value = fastjson.loads(data)
        if not isinstance(value, dict):
            raise BodyError("the body of a batch ack is not an object")
        acks = value.get("acks") or []
        if not isinstance(acks, list):
            raise BodyError("the acks of a batch ack are not a list")
        return cls(_text(value, "brokerName"), tuple(map(_decode_ack, acks)))

    def encode(self) -> bytes:
        """Write the body, in the short names that Java writes."""
        return orjson.dumps({"brokerName": self.broker_name, "acks": [_encode_ack(ack) for ack in self.acks]})


def batch_acks(topic: str, group: str, handles: Iterable[ExtraInfo]) -> tuple[BatchAck, ...]:
    """The handles of one topic, group and broker, brought together by checkpoint. Raises BodyError."""
    acks: dict[tuple[object, ...], BatchAck] = {}
    for handle in handles:
        bit = handle.queue_offset - handle.start_offset
        if not 0 <= bit < 8 * _LONGEST_BIT_SET:
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


# Field to short and long name in JSON.
_NAMES = {
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
    entry = {short: getattr(ack, name) for name, (short, _) in _NAMES.items()}
    entry["b"] = base64.b64encode(_bytes_of(ack.bits)).decode()
    return entry


def _decode_ack(value: object) -> BatchAck:
    if not isinstance(value, dict):
        raise BodyError("an ack of a batch ack is not an object")
    ack = {name: value.get(short, value.get(long)) for name, (short, long) in _NAMES.items()}
    return BatchAck(
        consumer_group=_text(ack, "consumer_group"),
        topic=_text(ack, "topic"),
        retry=_retry(_text(ack, "retry")),
        start_offset=_number(ack, "start_offset"),
        queue_id=_number(ack, "queue_id"),
        revive_queue_id=_number(ack, "revive_queue_id"),
        pop_time=_number(ack, "pop_time"),
        invisible_time=_number(ack, "invisible_time"),
        bits=_bits(_text(ack, "bits")),
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise BodyError(f"the {name} of a batch ack is not a string")
    return text


def _number(value: Mapping[str, Any], name: str) -> int:
    """A number as fastjson reads it: also from a string, and 0 where there is none."""
    number = value.get(name)
    if number is None:
        return 0
    return number if type(number) is int else _integer(str(number))


def _bits(text: str) -> int:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise BodyError("the bit set of a batch ack is not base64") from None
    if len(raw) > _LONGEST_BIT_SET:
        raise BodyError(f"the bit set of a batch ack has {len(raw)} bytes")
    return int.from_bytes(raw, "little")


def _bytes_of(bits: int) -> bytes:
    """A bit set as Java's BitSet.toByteArray gives it: little-endian, no trailing zeros."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")

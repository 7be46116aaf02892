"""Popped messages and their receipt handles (RocketMQ's ExtraInfoUtil and MQClientAPIImpl)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from remoting import properties
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.names import LMQ_PREFIX
from remoting.pop_offset_info import (
    OrderKey,
    QueueKey,
    Retry,
    is_integer,
    parse_integer,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_retry,
    parse_start_offset_info,
    retry_of,
)

# The revive queue of messages that were popped in order.
ORDER_REVIVE_QUEUE: Final = 999
_LMQ_SEPARATOR: Final = ","
_LMQ_QUEUE_ID: Final = 0


def _integer_field(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name)
    if text is None:
        raise BodyError(f"the field {name} is missing")
    return parse_integer(text)


# Not frozen, as StoredMessage.
@dataclass(slots=True, init=False)
class ExtraInfo:
    """The receipt handle of one popped message: the property POP_CK, and `extraInfo` of an ACK; not to be changed.

    Attributes:
        start_offset: start of the message's checkpoint, as a queue offset.
        pop_time: milliseconds since 1970.
        invisible_time: milliseconds from `pop_time`.
        queue_offset: queue offset of the message.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: Retry
    broker_name: str
    queue_id: int
    queue_offset: int

    def __init__(
        self,
        start_offset: int,
        pop_time: int,
        invisible_time: int,
        revive_queue_id: int,
        retry: Retry,
        broker_name: str,
        queue_id: int,
        queue_offset: int,
    ) -> None:
        self.start_offset = start_offset
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.revive_queue_id = revive_queue_id
        self.retry = retry
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle; further fields, as in a gRPC receipt handle, are ignored. Raises BodyError."""
        fields = text.split(" ")
        if len(fields) < 8 or not fields[5]:
            raise BodyError(f"extra info of {len(fields)} fields instead of 8, or without a broker name")
        return cls(
            start_offset=parse_integer(fields[0]),
            pop_time=parse_integer(fields[1]),
            invisible_time=parse_integer(fields[2]),
            revive_queue_id=parse_integer(fields[3]),
            retry=parse_retry(fields[4]),
            broker_name=fields[5],
            queue_id=parse_integer(fields[6]),
            queue_offset=parse_integer(fields[7]),
        )

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @property
    def visible_at(self) -> int:
        """When the message becomes visible again unless it is acknowledged, in milliseconds since 1970."""
        return self.pop_time + self.invisible_time

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order (FIFO)."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def changed(self, fields: Mapping[str, str]) -> Self:
        """Return the handle that replaces this one, from the response to CHANGE_MESSAGE_INVISIBLETIME.

        Raises BodyError.
        """
        return replace(
            self,
            start_offset=self.queue_offset,
            pop_time=_integer_field(fields, "popTime"),
            invisible_time=_integer_field(fields, "invisibleTime"),
            revive_queue_id=_integer_field(fields, "reviveQid"),
        )


# Responses to POP.


@dataclass(slots=True, init=False)
class PoppedMessage:
    """A message with the values that only the response to its POP contains; not to be changed.

    `first_pop_time` is the time of its first delivery, in milliseconds since 1970.
    """

    message: StoredMessage
    extra_info: ExtraInfo
    reconsume_times: int
    first_pop_time: int

    def __init__(
        self, message: StoredMessage, extra_info: ExtraInfo, reconsume_times: int, first_pop_time: int
    ) -> None:
        self.message = message
        self.extra_info = extra_info
        self.reconsume_times = reconsume_times
        self.first_pop_time = first_pop_time


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """The ext fields of the response to a POP."""

    pop_time: int
    invisible_time: int
    revive_queue_id: int
    start_offsets: Mapping[QueueKey, int]
    msg_offsets: Mapping[QueueKey, Sequence[int]]
    order_counts: Mapping[OrderKey, int]

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        return cls(
            pop_time=_integer_field(fields, "popTime"),
            invisible_time=_integer_field(fields, "invisibleTime"),
            revive_queue_id=_integer_field(fields, "reviveQid"),
            start_offsets=parse_start_offset_info(fields.get("startOffsetInfo", "")),
            msg_offsets=parse_msg_offset_info(fields.get("msgOffsetInfo", "")),
            order_counts=parse_order_count_info(fields.get("orderCountInfo", "")),
        )

    def retry_key(self, message: StoredMessage) -> QueueKey | None:
        """Return the queue of the retry topic that a message with a foreign handle was popped from; None for others.

        Brokers give a message of a retry topic the popped topic, and keep a handle that its producer has set.
        """
        if message.reconsume_times and message.get(properties.POP_CK) is not None:
            for retry in (Retry.V1, Retry.V2):
                if message.queue_offset in self.msg_offsets.get((retry, message.queue_id), ()):
                    return retry, message.queue_id
        return None

    def start_offset(self, key: QueueKey) -> int:
        try:
            return self.start_offsets[key]
        except KeyError:
            raise BodyError(f"no start offset for queue {key[1]} of retry flag {key[0]}") from None


def popped(
    messages: Sequence[StoredMessage], topic: str, fields: Mapping[str, str], broker_name: str
) -> list[PoppedMessage]:
    """Return the messages in the response to a POP with their handles, like Java's client (MQClientAPIImpl).

    `topic` is the requested one, `fields` are the ext fields of the response. Raises BodyError.
    """
    checkpoints = _Checkpoints.parse(fields)
    if not checkpoints.start_offsets:
        return _popped_without_start_offsets(messages, checkpoints, broker_name)
    result = []
    # The number of messages of each queue so far.
    counts_by_queue: dict[QueueKey, int] = defaultdict(int)
    for message in messages:
        extra_info = _stored_handle(message, checkpoints, broker_name)
        if extra_info is not None:
            counts_by_queue[extra_info.retry, message.queue_id] += 1
            result.append(_popped(message, extra_info, checkpoints, message.reconsume_times))
            continue
        name, queue_id, own_offset = _origin(message, topic)
        key = checkpoints.retry_key(message) or (retry_of(name), queue_id)
        # The broker lists a queue's offsets in the order of its messages.
        offsets, index = checkpoints.msg_offsets.get(key, ()), counts_by_queue[key]
        counts_by_queue[key] += 1
        extra_info = ExtraInfo(
            start_offset=checkpoints.start_offset(key),
            pop_time=checkpoints.pop_time,
            invisible_time=checkpoints.invisible_time,
            revive_queue_id=checkpoints.revive_queue_id,
            retry=key[0],
            broker_name=broker_name,
            queue_id=queue_id,
            queue_offset=offsets[index] if index < len(offsets) else own_offset,
        )
        counts = checkpoints.order_counts
        count = counts.get((*key, own_offset), counts.get((*key, None), 0)) if counts else 0
        result.append(_popped(message, extra_info, checkpoints, count if count > 0 else message.reconsume_times))
    return result


def _popped_without_start_offsets(
    messages: Sequence[StoredMessage], checkpoints: _Checkpoints, broker_name: str
) -> list[PoppedMessage]:
    """Handle responses of old brokers: the checkpoint of each topic's queue starts at its first message."""
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
    """Return the messages in the response to a POP_LITE_MESSAGE with their handles (MQClientAPIImpl of RocketMQ 5.5).

    Each message is stored in the one queue of its lite topic, and popped in order. Raises BodyError.
    """
    pop_time, invisible_time = _integer_field(fields, "popTime"), _integer_field(fields, "invisibleTime")
    revive_queue_id = _integer_field(fields, "reviveQid")
    items = (fields.get("orderCountInfo") or "").split(";")
    # A list of another length is ignored.
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
            queue_offset=message.queue_offset if offset is None else parse_integer(offset),
        )
        result.append(PoppedMessage(message, extra_info, count, pop_time))
    return result


def _lite_count(item: str) -> int:
    """Return the number of earlier deliveries of a message: a bare number, or the last of three fields."""
    fields = item.split(" ")
    return parse_integer(fields[-1]) if len(fields) in {1, 3} and fields[-1] else 0


def _popped(
    message: StoredMessage, extra_info: ExtraInfo, checkpoints: _Checkpoints, reconsume_times: int
) -> PoppedMessage:
    first_pop_time = message.get(properties.FIRST_POP_TIME)
    # A producer may have set the property: an invalid value must not make the whole response unreadable.
    if first_pop_time is None or not is_integer(first_pop_time):
        return PoppedMessage(message, extra_info, reconsume_times, checkpoints.pop_time)
    return PoppedMessage(message, extra_info, reconsume_times, int(first_pop_time))


def _stored_handle(message: StoredMessage, checkpoints: _Checkpoints, broker_name: str) -> ExtraInfo | None:
    """Return the handle that the broker stored in a message of a retry topic.

    A producer may have set the property, which brokers do not remove from the messages of a batch. Such a value must
    neither make the whole response unreadable, nor be taken for a handle of this response.
    """
    text = message.get(properties.POP_CK)
    if text is None:
        return None
    try:
        handle = ExtraInfo.parse(text)
    except BodyError:
        return None
    given = handle.pop_time, handle.broker_name, handle.queue_id, handle.queue_offset
    own = checkpoints.pop_time, broker_name, message.queue_id, message.queue_offset
    return handle if given == own else None


def _origin(message: StoredMessage, topic: str) -> tuple[str, int, int]:
    """Return topic, queue id and queue offset of a message as in the broker's checkpoint.

    A message in light message queues (LMQ) is stored once, in another topic, and lists its queues and its offset in
    each.
    """
    queues = message.get(properties.INNER_MULTI_DISPATCH)
    if queues is None or message.reconsume_times or not topic.startswith(LMQ_PREFIX):
        return message.topic, message.queue_id, message.queue_offset
    names = queues.split(_LMQ_SEPARATOR)
    offsets = (message.get(properties.INNER_MULTI_QUEUE_OFFSET) or "").split(_LMQ_SEPARATOR)
    if topic not in names or len(offsets) != len(names):
        raise BodyError(f"a message of {topic} does not say its offset there")
    return topic, _LMQ_QUEUE_ID, parse_integer(offsets[names.index(topic)])

"""Offset information in the responses to POP, by queue (RocketMQ's ExtraInfoUtil).

A queue is written as a retry flag and a queue id.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from remoting.errors import BodyError
from remoting.names import POP_SEPARATOR, RETRY_PREFIX, pop_retry_topic

_QUEUE_OFFSET: Final = "qo"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


class Retry(StrEnum):
    """Topic that a message was popped from: the requested one, or its group's retry topic by its old or new name."""

    NORMAL = "0"
    V1 = "1"
    V2 = "2"


_RETRIES: Final = {retry.value: retry for retry in Retry}


def retry_of(topic: str) -> Retry:
    """Return the retry flag of a topic. A group whose name contains `+` looks like a new retry topic."""
    if not topic.startswith(RETRY_PREFIX):
        return Retry.NORMAL
    return Retry.V2 if POP_SEPARATOR in topic else Retry.V1


def real_topic(topic: str, group: str, retry: Retry) -> str:
    """Return the topic that a message popped for `topic` came from; ACK and CHANGE_INVISIBLE have to name it."""
    return topic if retry is Retry.NORMAL else pop_retry_topic(topic, group, retry is Retry.V2)


_K = TypeVar("_K")
_V = TypeVar("_V")

# Retry flag and queue id.
QueueKey = tuple[Retry, int]
# Retry flag, queue id and, for the count of a single message, its queue offset.
OrderKey = tuple[Retry, int, int | None]


def parse_start_offset_info(text: str) -> dict[QueueKey, int]:
    """Parse the start offset of each queue's checkpoint: `retry queueId offset;…`. Raises BodyError."""
    return _unique((_queue_key(retry, queue), parse_integer(offset)) for retry, queue, offset in _items(text))


def format_start_offset_info(offsets: Mapping[QueueKey, int]) -> str:
    """Format the start offset of each queue's checkpoint."""
    return ";".join(f"{retry} {queue_id} {offset}" for (retry, queue_id), offset in offsets.items())


def parse_msg_offset_info(text: str) -> dict[QueueKey, tuple[int, ...]]:
    """Parse the offsets of each queue's messages: `retry queueId offset,offset,…;…`. Raises BodyError."""
    return _unique(
        (_queue_key(retry, queue), tuple(map(parse_integer, offsets.split(","))))
        for retry, queue, offsets in _items(text)
    )


def format_msg_offset_info(offsets: Mapping[QueueKey, Sequence[int]]) -> str:
    """Format the offsets of each queue's messages."""
    return ";".join(
        f"{retry} {queue_id} {','.join(map(str, queue_offsets))}"
        for (retry, queue_id), queue_offsets in offsets.items()
    )


def parse_order_count_info(text: str) -> dict[OrderKey, int]:
    """Parse the numbers of earlier deliveries, of a queue or of one message. Raises BodyError.

    The items are `retry queueId count` and `retry qo<queueId>%<offset> count`.
    """
    return _unique((_order_key(retry, queue), parse_integer(count)) for retry, queue, count in _items(text))


def format_order_count_info(counts: Mapping[OrderKey, int]) -> str:
    """Format the numbers of earlier deliveries."""
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
    result: dict[_K, _V] = {}
    for key, value in pairs:
        if key in result:
            raise BodyError("offset information names a queue twice")
        result[key] = value
    return result


def _queue_key(retry: str, queue_id: str) -> QueueKey:
    return parse_retry(retry), parse_integer(queue_id)


def _order_key(retry: str, queue: str) -> OrderKey:
    if not queue.startswith(_QUEUE_OFFSET):
        return parse_retry(retry), parse_integer(queue), None
    queue_id, _, offset = queue.removeprefix(_QUEUE_OFFSET).partition("%")
    return parse_retry(retry), parse_integer(queue_id), parse_integer(offset)


def parse_retry(text: str) -> Retry:
    """Parse a retry flag. Raises BodyError."""
    retry = _RETRIES.get(text)
    if retry is None:
        raise BodyError(f"unknown retry flag {text[:40]!r}")
    return retry


def is_integer(text: str) -> bool:
    """Return whether the text is a decimal integer of up to 19 digits."""
    return _INTEGER.fullmatch(text) is not None


def parse_integer(text: str) -> int:
    """Parse a decimal integer of up to 19 digits. Raises BodyError."""
    # Faster than the regular expression, and nearly always enough.
    if len(text) < 20 and text.isascii() and text.isdecimal():
        return int(text)
    if not is_integer(text):
        raise BodyError(f"not a number: {text[:40]!r}")
    return int(text)

"""Filtered reads of a queue, with the results of RocketMQ's DefaultMessageStore.getMessage."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.embedded.broker.filters import Filter, SqlFilter, TagFilter
from proxy.embedded.store import Corrupt, Store
from remoting import properties

_log = logging.getLogger("gantry.embedded")

# Minimum number of messages that a read examines before it ends without a match.
_MIN_SCANNED = 800
# Characters of an SQL filter for which a read examines as many; with a longer one it examines fewer.
_FILTER_LENGTH = 256
# Bytes of messages without a match after which a read ends, too: properties may have 32 KiB, bodies megabytes.
_SCANNED_BYTES = 1024 * 1024
# Bytes of a message that are read in the time in which a property is decoded.
_PROPERTY_BYTES = 64
_NO_PROPERTIES: dict[str, str] = {}
# Tags examined at once.
_TAG_PAGE = 256
# Maximum size of the messages in one response in bytes, unless the first one is larger.
READ_SIZE = 4 * 1024 * 1024
# The same if the client requests more. Clients reject frames over 16 MiB.
_MAX_READ_SIZE = 15 * 1024 * 1024
_QUEUE_OFFSET = slice(20, 28)
_COMMIT_LOG_OFFSET = slice(28, 36)
_STORE_TIMES = (56, 68)
# Bytes of a record up to the end of its store timestamp.
STORE_TIME_END = _STORE_TIMES[-1] + 8


class Status(StrEnum):
    """The result of a read; the names are used as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"


@dataclass(slots=True)
class Fetched:
    """The result of a read: encoded records with their queue offsets, the next offset, and the queue's bounds.

    effort: share of the effort of one read that messages without a match took, at least 1 if the bound was reached.
    """

    status: Status
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    effort: float = 0.0


def fetch(
    store: Store,
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    message_filter: Filter | None,
    size: int = READ_SIZE,
    effort: float = 0.0,
) -> Fetched:
    """Return at most `count` messages from a queue offset on, of at most `size` bytes unless the first is larger.

    effort: that of other reads for the same request.
    """
    min_offset, max_offset = store.bounds(topic, queue_id)
    if max_offset == 0:
        empty = Status.NO_MESSAGE_IN_QUEUE if queue_id in store.queues(topic) else Status.NO_MATCHED_LOGIC_QUEUE
        return Fetched(empty, 0, min_offset, max_offset)
    if offset < min_offset:
        return Fetched(Status.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
    if offset == max_offset:
        return Fetched(Status.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
    if offset > max_offset:
        return Fetched(Status.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)
    fetched = Fetched(Status.NO_MATCHED_MESSAGE, offset, min_offset, max_offset)
    size = max(min(size, _MAX_READ_SIZE), 100)
    unmatched = 0
    scanned = max(_scanned(message_filter), count)
    while not fetched.records and fetched.next_offset < max_offset and effort + fetched.effort < 1:
        unmatched += _read_some(store, topic, queue_id, count, message_filter, size, fetched)
        examined = fetched.next_offset - offset - len(fetched.records)
        fetched.effort = max(examined / scanned, unmatched / _SCANNED_BYTES)
    return fetched


def _scanned(message_filter: Filter | None) -> int:
    """Return the number of messages that a read examines before it ends without a match."""
    length = len(message_filter.text) if isinstance(message_filter, SqlFilter) else 0
    return _MIN_SCANNED * _FILTER_LENGTH // max(length, _FILTER_LENGTH)


def _read_some(
    store: Store, topic: str, queue_id: int, count: int, message_filter: Filter | None, size: int, fetched: Fetched
) -> int:
    """Read some messages; return the bytes of those that do not match, and more for their properties."""
    if isinstance(message_filter, TagFilter) and _skip(store, topic, queue_id, count, message_filter, fetched):
        return 0
    following = fetched.next_offset + 1
    try:
        records = store.read(topic, queue_id, fetched.next_offset, max(count, 1), size)
    except Corrupt as error:
        # Skipped; the queue continues after it.
        _log.error("message %d of queue %d of topic %s is skipped: %s", fetched.next_offset, queue_id, topic, error)
        following = error.next_offset or following
        records = []
    if not records:
        fetched.next_offset = following
        fetched.status = Status.MESSAGE_WAS_REMOVING
        return 0
    unmatched = 0
    for record in records:
        offset = queue_offset(record)
        fetched.next_offset = offset + 1
        pairs = _NO_PROPERTIES if message_filter is None else record_properties(record)
        if message_filter is None or message_filter.matches(pairs):
            fetched.records.append(record)
            fetched.offsets.append(offset)
            continue
        unmatched += len(record) + _PROPERTY_BYTES * len(pairs)
        if unmatched >= _SCANNED_BYTES:
            break
    if fetched.records:
        fetched.status = Status.FOUND
    return unmatched


def _skip(store: Store, topic: str, queue_id: int, count: int, message_filter: TagFilter, fetched: Fetched) -> bool:
    """Advance to the next message with a matching tag by the queue's index; return whether there was none so far."""
    codes = store.tag_codes(topic, queue_id, fetched.next_offset, max(count, _TAG_PAGE))
    index = next((index for index, code in enumerate(codes) if code in message_filter.codes), len(codes))
    fetched.next_offset += index
    return 0 < index == len(codes)


def queue_offset(record: bytes) -> int:
    """Return the queue offset of an encoded record."""
    return int.from_bytes(record[_QUEUE_OFFSET], "big")


def commit_log_offset(record: bytes) -> int:
    """Return the commit log offset of an encoded record."""
    return int.from_bytes(record[_COMMIT_LOG_OFFSET], "big")


def store_timestamp(record: bytes) -> int:
    """Return the store timestamp of an encoded record in ms."""
    # It follows the born host of 8 or 20 bytes, by bit 4 of the sys flag.
    start = _STORE_TIMES[record[39] >> 4 & 1]
    return int.from_bytes(record[start : start + 8], "big")


def record_properties(record: bytes) -> Mapping[str, str]:
    """Return the properties of an encoded record."""
    hosts = record[39] >> 4
    position = 84 + 12 * (hosts & 1) + 12 * (hosts >> 1 & 1)
    position += 4 + int.from_bytes(record[position : position + 4], "big")
    # Version 2 of the record has a topic length of two bytes.
    wide = 2 if record[7] == 0xAB else 1
    position += wide + int.from_bytes(record[position : position + wide], "big")
    return properties.decode(record[position + 2 :].decode(errors="replace"))

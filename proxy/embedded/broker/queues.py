"""Reading a queue through a filter, with the outcomes of RocketMQ's DefaultMessageStore.getMessage."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.embedded.broker.filters import Filter, TagFilter
from proxy.embedded.store import Corrupt, Store
from remoting import properties

_log = logging.getLogger("gantry.embedded")

# A read looks at this many messages at least before it gives up on finding one that matches.
_SCANNED = 800
# Tags looked at in one go.
_POLL_INTERVAL = 256
# Bytes of one answer.
LARGEST_READ = 64 * 1024 * 1024
_QUEUE_OFFSET = slice(20, 28)
_STORE_TIMES = (56, 68)


class Status(StrEnum):
    """How a read ended; the names go into remarks."""

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
    """What a read found: encoded records with their queue offsets, where to go on, and the queue's bounds."""

    status: Status
    next_offset: int
    least: int
    most: int
    records: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def fetch(
    store: Store, topic: str, queue_id: int, offset: int, count: int, wanted: Filter | None, size: int = LARGEST_READ
) -> Fetched:
    """Read at most `count` messages from a queue offset on."""
    least, most = store.bounds(topic, queue_id)
    if most == 0:
        known = queue_id in store.queues(topic)
        return Fetched(Status.NO_MESSAGE_IN_QUEUE if known else Status.NO_MATCHED_LOGIC_QUEUE, 0, least, most)
    if offset < least:
        return Fetched(Status.OFFSET_TOO_SMALL, least, least, most)
    if offset == most:
        return Fetched(Status.OFFSET_OVERFLOW_ONE, offset, least, most)
    if offset > most:
        return Fetched(Status.OFFSET_OVERFLOW_BADLY, most, least, most)
    found = Fetched(Status.NO_MATCHED_MESSAGE, offset, least, most)
    size = max(min(size, LARGEST_READ), 100)
    limit = offset + max(_SCANNED, count)
    while not found.records and found.next_offset < min(most, limit):
        _read_some(store, topic, queue_id, count, wanted, size, found)
    return found


def _read_some(
    store: Store, topic: str, queue_id: int, count: int, wanted: Filter | None, size: int, found: Fetched
) -> None:
    if isinstance(wanted, TagFilter) and _skip(store, topic, queue_id, count, wanted, found):
        return
    following = found.next_offset + 1
    try:
        records = store.read(topic, queue_id, found.next_offset, max(count, 1), size)
    except Corrupt as error:
        # Never served; the queue goes on behind it.
        _log.error("message %d of queue %d of topic %s is skipped: %s", found.next_offset, queue_id, topic, error)
        following = error.next_offset or following
        records = []
    if not records:
        found.next_offset = following
        found.status = Status.MESSAGE_WAS_REMOVING
        return
    for record in records:
        offset = queue_offset(record)
        found.next_offset = offset + 1
        if wanted is None or wanted.wants(record_properties(record)):
            found.records.append(record)
            found.offsets.append(offset)
    if found.records:
        found.status = Status.FOUND


def _skip(store: Store, topic: str, queue_id: int, count: int, wanted: TagFilter, found: Fetched) -> bool:
    """Go on to the next message with a wanted tag, as queues know them without their messages; true: none so far."""
    codes = store.tag_codes(topic, queue_id, found.next_offset, max(count, _POLL_INTERVAL))
    index = next((index for index, code in enumerate(codes) if code in wanted.codes), len(codes))
    found.next_offset += index
    return 0 < index == len(codes)


def queue_offset(record: bytes) -> int:
    """The queue offset of an encoded record."""
    return int.from_bytes(record[_QUEUE_OFFSET], "big")


def store_timestamp(record: bytes) -> int:
    """The store timestamp of an encoded record, in milliseconds."""
    # The born host of 8 or 20 bytes stands before it; bit 4 of the sys flag says which.
    start = _STORE_TIMES[record[39] >> 4 & 1]
    return int.from_bytes(record[start : start + 8], "big")


def record_properties(record: bytes) -> Mapping[str, str]:
    """The properties of an encoded record."""
    hosts = record[39] >> 4
    position = 84 + 12 * (hosts & 1) + 12 * (hosts >> 1 & 1)
    position += 4 + int.from_bytes(record[position : position + 4], "big")
    # Version 2 of the record has two bytes for the topic's length.
    wide = 2 if record[7] == 0xAB else 1
    position += wide + int.from_bytes(record[position : position + wide], "big")
    return properties.decode(record[position + 2 :].decode(errors="replace"))

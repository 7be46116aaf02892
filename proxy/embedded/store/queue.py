"""A queue's index: the position of its message in the log for every queue offset."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from remoting.properties import java_hash_code

_FIELDS = struct.Struct(">QIiQ")
_CRC = struct.Struct(">I")
ENTRY_SIZE = _FIELDS.size + _CRC.size
# Entries in one row of the index file.
CHUNK = 256


@lru_cache(4096)
def tag_code(tag: str | None) -> int:
    """Return the hash code by which queues and subscriptions (SubscriptionData.codeSet) identify a tag; 0 for none."""
    return java_hash_code(tag) if tag else 0


class Entry(NamedTuple):
    """Position and size of a message in the log. Size 0: the message is lost, and the log continues at `position`."""

    position: int
    size: int
    tag_code: int
    time: int


def encode_entry(position: int, size: int, tag_code: int, time: int, offset: int) -> bytes:
    """Return the entry of a queue offset, with a CRC."""
    fields = _FIELDS.pack(position, size, tag_code, time)
    return fields + _CRC.pack(crc32(fields, offset & 0xFFFFFFFF))


def decode_entry(data: bytes | bytearray, start: int, offset: int) -> Entry | None:
    """Return the entry at `start`; None if it is damaged."""
    fields = bytes(data[start : start + _FIELDS.size])
    (crc,) = _CRC.unpack_from(data, start + _FIELDS.size)
    return Entry._make(_FIELDS.unpack(fields)) if crc == crc32(fields, offset & 0xFFFFFFFF) else None


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. `tail` contains the entries from `tail_start` on that may not be in the index file yet."""

    number: int  # in the index file
    topic: str
    queue_id: int
    first: int = 0
    next: int = 0
    tail_start: int = 0
    # The start of the log when `first` was last looked up.
    trimmed: int = 0
    # Whether `first` differs from that in the index file, and the first row of entries there.
    moved: bool = False
    first_chunk: int = 0
    dropped: int | None = None
    tail: bytearray | None = None

    def add(self, position: int, size: int, tag_code: int, time: int) -> None:
        """Add the entry of the next queue offset."""
        if self.tail is None:
            self.tail = bytearray()
        self.tail += encode_entry(position, size, tag_code, time, self.next)
        self.next += 1

    def lose(self, until: int, position: int, time: int) -> None:
        """Add entries of lost messages up to a queue offset."""
        while self.next < until:
            self.add(position, 0, 0, time)

    def in_tail(self, offset: int) -> Entry | None:
        assert self.tail is not None
        return decode_entry(self.tail, (offset - self.tail_start) * ENTRY_SIZE, offset)

    def staged(self, position: int) -> int:
        """Return the queue offset up to which entries are of messages before a position of the log."""
        offset = self.next
        while offset > self.tail_start:
            entry = self.in_tail(offset - 1)
            if entry is not None and entry.position < position:
                break
            offset -= 1
        return offset

    def chunks(self, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield the tail's entries before a queue offset, with the number of their row in the index file."""
        tail = bytes(self.tail or b"")
        offset = self.tail_start
        while offset < until:
            stop = min((offset // CHUNK + 1) * CHUNK, until)
            start = (offset - self.tail_start) * ENTRY_SIZE
            yield offset // CHUNK, tail[start : start + (stop - offset) * ENTRY_SIZE]
            offset = stop

    def discard(self, until: int) -> None:
        """Remove the tail's entries before a queue offset, which are in the index file."""
        if self.tail is not None:
            del self.tail[: (until - self.tail_start) * ENTRY_SIZE]
            self.tail_start = until
            if not self.tail:
                self.tail = None

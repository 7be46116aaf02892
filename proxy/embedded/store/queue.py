"""A queue's index: for every queue offset, where in the log its message is."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

_FIELDS = struct.Struct(">QIiQ")
_CRC = struct.Struct(">I")
ENTRY_SIZE = _FIELDS.size + _CRC.size
# Entries in one row of the index file.
CHUNK = 256


class Entry(NamedTuple):
    """Where a message is. A `size` of 0: it is lost, and `position` is where the log goes on."""

    position: int
    size: int
    tag_code: int
    time: int


def encode(position: int, size: int, tag_code: int, time: int, offset: int) -> bytes:
    fields = _FIELDS.pack(position, size, tag_code, time)
    return fields + _CRC.pack(crc32(fields, offset & 0xFFFFFFFF))


def decode(data: bytes | bytearray, start: int, offset: int) -> Entry | None:
    """The entry that stands here; None where it is damaged."""
    fields = bytes(data[start : start + _FIELDS.size])
    (crc,) = _CRC.unpack_from(data, start + _FIELDS.size)
    return Entry._make(_FIELDS.unpack(fields)) if crc == crc32(fields, offset & 0xFFFFFFFF) else None


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. `tail` holds the entries from `tail_start` on, which the index file may not have yet."""

    number: int  # in the index file
    topic: str
    queue_id: int
    first: int = 0
    next: int = 0
    tail_start: int = 0
    # Where the log began when `first` was last looked up.
    trimmed: int = 0
    # Whether the index file has another `first`, and before which row it has nothing.
    moved: bool = False
    kept: int = 0
    dropped: int | None = None
    tail: bytearray | None = None

    def add(self, position: int, size: int, tag_code: int, time: int) -> None:
        """The entry of the next queue offset."""
        if self.tail is None:
            self.tail = bytearray()
        self.tail += encode(position, size, tag_code, time, self.next)
        self.next += 1

    def lose(self, until: int, position: int, time: int) -> None:
        """Queue offsets up to here have no message."""
        while self.next < until:
            self.add(position, 0, 0, time)

    def in_tail(self, offset: int) -> Entry | None:
        assert self.tail is not None
        return decode(self.tail, (offset - self.tail_start) * ENTRY_SIZE, offset)

    def staged(self, position: int) -> int:
        """The queue offset up to which entries are of messages before a position of the log."""
        offset = self.next
        while offset > self.tail_start:
            entry = self.in_tail(offset - 1)
            if entry is not None and entry.position < position:
                break
            offset -= 1
        return offset

    def chunks(self, until: int) -> Iterator[tuple[int, bytes]]:
        """The tail's entries before a queue offset, by the row that they go to."""
        tail = bytes(self.tail or b"")
        offset = self.tail_start
        while offset < until:
            stop = min((offset // CHUNK + 1) * CHUNK, until)
            start = (offset - self.tail_start) * ENTRY_SIZE
            yield offset // CHUNK, tail[start : start + (stop - offset) * ENTRY_SIZE]
            offset = stop

    def settle(self, until: int) -> None:
        """Forget the tail's entries before a queue offset: the index file has them."""
        if self.tail is not None:
            del self.tail[: (until - self.tail_start) * ENTRY_SIZE]
            self.tail_start = until
            if not self.tail:
                self.tail = None

"""Positions of messages by key."""

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b

# Keys are grouped by ranges of the log of this size, which are removed as a whole.
PERIOD = 1 << 28

_POSITION = struct.Struct(">Q")
_HASH_SIZE = 8
ENTRY_SIZE = _HASH_SIZE + _POSITION.size


def digest(topic: str, key: str) -> bytes:
    """Return the hash of a key of a topic; readers check the messages, because keys may collide."""
    return blake2b(f"{topic}#{key}".encode(), digest_size=_HASH_SIZE).digest()


def position_of(entry: bytes | bytearray) -> int:
    position: int = _POSITION.unpack_from(entry, _HASH_SIZE)[0]
    return position


@dataclass(slots=True)
class Period:
    """The keys of one range of the log that are not in the index file yet, and the times (ms) of all its messages."""

    oldest: int
    newest: int
    entries: bytearray = field(default_factory=bytearray)

    def find(self, key: bytes, limit: int) -> list[int]:
        """Return the positions of at most `limit` messages with a key's hash, newest first."""
        found: list[int] = []
        end = len(self.entries)
        while len(found) < limit and (start := self.entries.rfind(key, 0, end)) >= 0:
            if start % ENTRY_SIZE == 0:
                found.append(position_of(self.entries[start : start + ENTRY_SIZE]))
            end = start + _HASH_SIZE - 1
        return found

    def staged(self, position: int) -> bytes:
        """Return the entries of messages before a position of the log."""
        end = len(self.entries)
        while end and position_of(self.entries[end - ENTRY_SIZE : end]) >= position:
            end -= ENTRY_SIZE
        return bytes(self.entries[:end])


class PendingKeys:
    """Keys that are not in the index file yet, by period."""

    def __init__(self) -> None:
        self.periods: dict[int, Period] = {}

    def add(self, topic: str, keys: Collection[str], position: int, time: int) -> None:
        """Add the keys of a message at a position of the log, stored at a time (ms)."""
        period = self.periods.get(position // PERIOD)
        if period is None:
            period = self.periods[position // PERIOD] = Period(time, time)
        period.newest = time
        where = _POSITION.pack(position)
        for key in keys:
            period.entries += digest(topic, key) + where

    def between(self, begin: int, end: int) -> list[int]:
        """Return the periods that may contain messages stored between two times (ms), newest first."""
        periods = (number for number, period in self.periods.items() if period.oldest <= end and period.newest >= begin)
        return sorted(periods, reverse=True)

    def discard(self, period: int, size: int) -> None:
        """Remove the first `size` bytes of a period's entries, which are in the index file."""
        del self.periods[period].entries[:size]

    def trim(self, position: int) -> None:
        """Remove the periods before a position of the log."""
        for number in [number for number in self.periods if (number + 1) * PERIOD <= position]:
            del self.periods[number]

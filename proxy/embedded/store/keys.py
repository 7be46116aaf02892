"""Which messages have which key."""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b

# Keys are kept by stretches of the log, so that old ones go as one, and by hash in these.
PERIOD = 1 << 28

_POSITION = struct.Struct(">Q")
_HASH_SIZE = 8
ENTRY_SIZE = _HASH_SIZE + _POSITION.size


def digest(topic: str, key: str) -> bytes:
    """What stands for a key of a topic; keys that collide are told apart by their messages."""
    return blake2b(f"{topic}#{key}".encode(), digest_size=_HASH_SIZE).digest()


def position_of(entry: bytes | bytearray) -> int:
    position: int = _POSITION.unpack_from(entry, _HASH_SIZE)[0]
    return position


@dataclass(slots=True)
class Period:
    """The keys of one stretch of the log that the index file does not have yet, and when its messages were stored."""

    oldest: int
    newest: int
    entries: bytearray = field(default_factory=bytearray)

    def find(self, key: bytes) -> list[int]:
        """Positions of the messages that have a key, newest first."""
        found = []
        end = len(self.entries)
        while (start := self.entries.rfind(key, 0, end)) >= 0:
            if start % ENTRY_SIZE == 0:
                found.append(position_of(self.entries[start : start + ENTRY_SIZE]))
            end = start + _HASH_SIZE - 1
        return found

    def staged(self, position: int) -> bytes:
        """The entries of messages before a position of the log."""
        end = len(self.entries)
        while end and position_of(self.entries[end - ENTRY_SIZE : end]) >= position:
            end -= ENTRY_SIZE
        return bytes(self.entries[:end])


class PendingKeys:
    """What is known of keys beside the index file."""

    def __init__(self) -> None:
        self.periods: dict[int, Period] = {}

    def add(self, topic: str, keys: list[str], position: int, time: int) -> None:
        """A message and its keys."""
        period = self.periods.get(position // PERIOD)
        if period is None:
            period = self.periods[position // PERIOD] = Period(time, time)
        period.newest = time
        where = _POSITION.pack(position)
        for key in keys:
            period.entries += digest(topic, key) + where

    def between(self, begin: int, end: int) -> list[int]:
        """The periods that may have messages stored between two times, newest first."""
        periods = (number for number, each in self.periods.items() if each.oldest <= end and each.newest >= begin)
        return sorted(periods, reverse=True)

    def settle(self, period: int, size: int) -> None:
        """Forget so many bytes of a period's entries: the index file has them."""
        del self.periods[period].entries[:size]

    def trim(self, position: int) -> None:
        """Forget the periods that lie before a position of the log."""
        for number in [number for number in self.periods if (number + 1) * PERIOD <= position]:
            del self.periods[number]

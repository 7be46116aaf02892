"""The deadlines of all calls of a server: a dictionary entry each, and one timer."""

import asyncio
from typing import Protocol


class Expiring(Protocol):
    """Something with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""


class Deadlines:
    """Entries by the tick in which they are due. One that ends before is taken out, so what has ended costs nothing.

    (The timeout wheel of remoting keeps its entries until they are due; clients of gRPC give deadlines of minutes.)
    """

    __slots__ = ("_loop", "_passed", "_slots", "_tick", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: float) -> None:
        self._loop = loop
        self._tick = tick
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The last tick whose entries have expired.
        self._passed = 0

    def add(self, entry: Expiring, at: float) -> int:
        """Expire the entry at time `at`, up to a tick late. The result is what `remove` has to be told."""
        if self._timer is None:
            self._passed = int(self._loop.time() / self._tick)
            self._arm()
        number = max(int(at / self._tick), self._passed) + 1
        slot = self._slots.get(number)
        if slot is None:
            self._slots[number] = {entry: None}
        else:
            slot[entry] = None
        return number

    def remove(self, entry: Expiring, number: int) -> None:
        """The entry is not to expire any more; it may have."""
        slot = self._slots.get(number)
        if slot is not None:
            slot.pop(entry, None)
            if not slot:
                del self._slots[number]

    def _arm(self) -> None:
        # Every tick, while there are entries: when the next is due need not be known, nor kept up as they go.
        self._timer = self._loop.call_at((self._passed + 1) * self._tick, self._advance)

    def _advance(self) -> None:
        current = max(int(self._loop.time() / self._tick), self._passed + 1)
        due = [self._slots.pop(number, ()) for number in range(self._passed + 1, current + 1)]
        self._passed = current
        # Before anything can go wrong.
        self._timer = None
        if self._slots:
            self._arm()
        for slot in due:
            # What expires takes others along at times, but nothing out of a slot that is not there any more.
            for entry in slot:
                entry.expire()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()

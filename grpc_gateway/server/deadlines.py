"""The deadlines of all calls of a server: a dictionary entry each, and one timer."""

import asyncio
from typing import Protocol


class Expiring(Protocol):
    """Something with a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""


# Ticks after which slots are dropped whose entries have all gone, however far they are.
_TIDIED = 64


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

    def add(self, entry: Expiring, at: float) -> dict[Expiring, None]:
        """Expire the entry at time `at`, up to a tick late, unless it is deleted from the result before."""
        if self._timer is None:
            self._passed = int(self._loop.time() / self._tick)
            self._arm()
        number = max(int(at / self._tick), self._passed) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
        slot[entry] = None
        return slot

    def _arm(self) -> None:
        # Every tick, while there are entries: when the next is due need not be known, nor kept up as they go.
        self._timer = self._loop.call_at((self._passed + 1) * self._tick, self._advance)

    def _advance(self) -> None:
        current = max(int(self._loop.time() / self._tick), self._passed + 1)
        due = [self._slots.pop(number, ()) for number in range(self._passed + 1, current + 1)]
        if current // _TIDIED != self._passed // _TIDIED:
            self._slots = {number: slot for number, slot in self._slots.items() if slot}
        self._passed = current
        # Before anything can go wrong.
        self._timer = None
        if self._slots:
            self._arm()
        for slot in due:
            # A copy: what expires takes itself out, and others along at times.
            for entry in tuple(slot):
                entry.expire()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()

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

    __slots__ = ("_armed", "_loop", "_slots", "_tick", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: float) -> None:
        self._loop = loop
        self._tick = tick
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0

    def add(self, entry: Expiring, at: float) -> dict[Expiring, None]:
        """Expire the entry at time `at`, up to a tick late, unless it is deleted from the result before."""
        number = int(at / self._tick) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            if self._timer is None or number < self._armed:
                self._arm(number)
        slot[entry] = None
        return slot

    def _arm(self, number: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = number
        self._timer = self._loop.call_at(number * self._tick, self._advance)

    def _advance(self) -> None:
        self._timer = None
        current = int(self._loop.time() / self._tick)
        due = sorted(number for number, slot in self._slots.items() if number <= current or not slot)
        for number in due:
            # A copy: what expires takes itself out.
            for entry in list(self._slots.pop(number)):
                entry.expire()
        if self._slots and self._timer is None:
            self._arm(max(min(self._slots), current + 1))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()

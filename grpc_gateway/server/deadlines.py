"""Deadlines of a server's calls: one dictionary entry each, and a single timer."""

import asyncio
from typing import Final, Protocol


class Expiring(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """Handle the passing of the deadline."""


# Ticks between removals of empty slots, however far away they are.
_TICKS_BETWEEN_CLEANUPS: Final = 64


class Deadlines:
    """Entries by the tick in which they are due. An entry that ends earlier is removed at no further cost.

    (The timeout wheel of remoting keeps its entries until they are due; gRPC clients set deadlines of minutes.)
    """

    __slots__ = ("_loop", "_passed", "_slots", "_tick", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: float) -> None:
        self._loop = loop
        self._tick = tick
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The last tick whose entries have expired.
        self._passed = 0

    @property
    def now(self) -> float:
        """The current time in seconds of the event loop's clock."""
        return self._loop.time()

    def add(self, entry: Expiring, at: float) -> dict[Expiring, None]:
        """Let the entry expire at time `at`, up to a tick late, unless it is deleted from the returned slot before."""
        if self._timer is None:
            self._passed = int(self._loop.time() / self._tick)
            self._start_timer()
        number = max(int(at / self._tick), self._passed) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
        slot[entry] = None
        return slot

    def _start_timer(self) -> None:
        # The timer fires at each tick while there are entries, so the next due time need not be maintained.
        self._timer = self._loop.call_at((self._passed + 1) * self._tick, self._advance)

    def _advance(self) -> None:
        current = max(int(self._loop.time() / self._tick), self._passed + 1)
        due = [self._slots.pop(number, ()) for number in range(self._passed + 1, current + 1)]
        if current // _TICKS_BETWEEN_CLEANUPS != self._passed // _TICKS_BETWEEN_CLEANUPS:
            self._slots = {number: slot for number, slot in self._slots.items() if slot}
        self._passed = current
        # Restarted first, so that an error below does not stop the timer.
        self._timer = None
        if self._slots:
            self._start_timer()
        for slot in due:
            # Copied, as an entry removes itself when it expires, and may remove others.
            for entry in tuple(slot):
                entry.expire()

    def close(self) -> None:
        """Drop all entries without expiring them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()

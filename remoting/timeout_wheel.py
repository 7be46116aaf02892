"""A timeout wheel: one list operation per deadline instead of one timer."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from protocol_negotiation.standstill import GRACE_SECONDS, is_late

_log = logging.getLogger("gantry.remoting")


class WheelEntry(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """Handle the deadline; do nothing if the entry has ended before."""


class TimeoutWheel:
    """Entries by deadline, in slots of `tick` seconds; an entry expires up to one tick late.

    Entries stay until their deadline, so they must be small, and drop their references once they have ended. The
    wheel does no I/O: its owner calls `advance` about once per tick (see `ticking`).
    """

    __slots__ = ("_advanced", "_clock", "_slots", "tick")

    def __init__(self, clock: Callable[[], float], tick: float = 0.1) -> None:
        self.tick = tick
        self._clock = clock
        self._slots: dict[int, list[WheelEntry]] = {}
        # The number of the last slot that has expired.
        self._advanced = int(clock() / tick)

    def now(self) -> float:
        """Return the time of the wheel's clock, in seconds."""
        return self._clock()

    def add(self, entry: WheelEntry, delay: float) -> None:
        """Expire the entry in `delay` seconds."""
        # An entry in a slot that has expired already would never expire.
        number, advanced = int((self._clock() + delay) / self.tick), self._advanced
        number = (number if number > advanced else advanced) + 1
        slot = self._slots.get(number)
        if slot is None:
            self._slots[number] = [entry]
        else:
            slot.append(entry)

    def advance(self) -> None:
        """Expire the entries that are due."""
        current = int(self._clock() / self.tick)
        for number in range(self._advanced + 1, current + 1):
            for entry in self._slots.pop(number, ()):
                try:
                    entry.expire()
                except Exception:
                    # The other entries must still expire.
                    _log.exception("the expiry of %s failed", type(entry).__name__)
        self._advanced = max(self._advanced, current)

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))


@contextmanager
def ticking(wheel: TimeoutWheel) -> Iterator[None]:
    """Advance the wheel on the running loop while the context is active; after a standstill, a moment later."""
    loop = asyncio.get_running_loop()
    due = loop.time() + wheel.tick
    handle = loop.call_at(due, lambda: tick())

    def tick() -> None:
        nonlocal handle
        if is_late(loop, due):
            _log.warning("the process stood still for %.1f s: timeouts are checked after reads", loop.time() - due)
            handle = loop.call_later(GRACE_SECONDS, advance)
        else:
            advance()

    def advance() -> None:
        nonlocal handle, due
        # First, so that an exception does not stop the wheel.
        due = loop.time() + wheel.tick
        handle = loop.call_at(due, tick)
        wheel.advance()

    try:
        yield
    finally:
        handle.cancel()

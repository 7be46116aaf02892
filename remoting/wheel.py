"""One timeout wheel for all requests under way: a list operation per request instead of a timer."""

from collections.abc import Callable
from typing import Protocol


class Expiring(Protocol):
    """Something with a deadline; `expire` must do nothing where it has ended before."""

    def expire(self) -> None:
        """The deadline has passed."""


class TimeoutWheel:
    """Entries by deadline in slots of `tick` seconds; an entry expires up to one tick late.

    Entries are never taken out before their time, so they must be light and let go of what they
    hold once they have ended. No clock inside: whoever owns the wheel calls `advance(now)` about
    once a tick.
    """

    __slots__ = ("_advanced", "_clock", "_slots", "tick")

    def __init__(self, clock: Callable[[], float], tick: float = 0.1) -> None:
        self.tick = tick
        self._clock = clock
        self._slots: dict[int, list[Expiring]] = {}
        self._advanced = int(clock() / tick)

    def add(self, entry: Expiring, delay: float) -> None:
        """Expire the entry in `delay` seconds."""
        # Never into a slot that has been emptied already, or it would wait for ever.
        number = max(int((self._clock() + delay) / self.tick), self._advanced) + 1
        slot = self._slots.get(number)
        if slot is None:
            self._slots[number] = [entry]
        else:
            slot.append(entry)

    def advance(self) -> None:
        """Expire what is due."""
        current = int(self._clock() / self.tick)
        for number in range(self._advanced + 1, current + 1):
            for entry in self._slots.pop(number, ()):
                entry.expire()
        self._advanced = max(self._advanced, current)

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

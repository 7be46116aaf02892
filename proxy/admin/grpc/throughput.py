"""Messages per second, in and out, over the last seconds."""

from collections.abc import Callable

from proxy.core.events import Observation
from proxy.operations.history.second import Sums

# Number of whole seconds in the average.
_SECONDS = 10


class Throughput:
    """`observe` is an observer of the core; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = int(clock())
        # The sums of a second are at its number modulo the length, with the second.
        self._slots = [(-1, Sums())] * (_SECONDS + 1)

    def observe(self, seen: Observation) -> None:
        """Count an answered request."""
        if seen.messages:
            self._slot(int(self._clock())).add(Sums.of(seen.code, seen.ok, 1, seen.messages, 0, 0))

    def _slot(self, second: int) -> Sums:
        place = second % len(self._slots)
        known, sums = self._slots[place]
        if known != second:
            sums = Sums()
            self._slots[place] = (second, sums)
        return sums

    def rates(self) -> tuple[float, float]:
        """Return messages sent and delivered per second, without the current second."""
        now = int(self._clock())
        recent = [sums for second, sums in self._slots if now - _SECONDS <= second < now]
        seconds = max(min(now - self._began, _SECONDS), 1)
        return sum(one.sent for one in recent) / seconds, sum(one.delivered for one in recent) / seconds

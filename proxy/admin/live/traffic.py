"""The last minutes of traffic, second by second; observed only while the live page is open."""

import time
from collections import deque
from collections.abc import Callable, Iterable

from proxy.admin.live.last_minute import NameSums
from proxy.admin.live.traffic_second import Second
from proxy.core.events import Observation, Observer

# Seconds that are kept, and seconds over which topics and groups are summed.
MAX_SECONDS = 300
ROW_SECONDS = 60
# Seconds after the last look until observation stops, so that a reloaded page continues.
LINGER = 60.0


class Traffic:
    """Sums by second. `observers` is the core's list; it has no observer of this class after `LINGER` idle seconds."""

    def __init__(self, observers: list[Observer], clock: Callable[[], float] = time.time) -> None:
        self._observers = observers
        self._clock = clock
        self._seconds: deque[Second] = deque(maxlen=MAX_SECONDS)
        self._name_sums = {"topics": NameSums(), "groups": NameSums()}
        self._last_look = 0.0
        # The current second, and the time at which it ends.
        self._current = Second(0)
        self._current_end = 0
        self._observing = False

    @property
    def observing(self) -> bool:
        return self._observing

    def keep_observing(self) -> None:
        """Observe traffic, from now until `LINGER` seconds after the last call."""
        self._last_look = self._clock()
        if not self._observing:
            self._observing = True
            self._observers.append(self.observe)

    def observe(self, observation: Observation) -> None:
        """Count an answered request."""
        if self._clock() >= self._current_end:
            self._advance()
        self._current.add(observation)

    def stop_if_idle(self) -> None:
        """Stop observing if the page is closed."""
        if self._observing and self._clock() - self._last_look > LINGER:
            self._observing = False
            self._observers.remove(self.observe)
            self._clear()

    def seconds(self, since: int) -> list[Second]:
        """Return the complete seconds after this one."""
        self._advance()
        return [second for second in list(self._seconds)[:-1] if second.at > since]

    def busiest(self, kind: str, limit: int, text: str = "") -> list[tuple[str, dict[str, float], list[int]]]:
        """Return the busiest topics or groups (`kind`) of the last minute whose names contain `text`.

        Of each: name, figures per second, and the requests of each of the last seconds, the newest last.
        """
        self._advance()
        seconds = list(self._seconds)[-1 - ROW_SECONDS : -1]
        table = self._name_sums[kind]
        return [
            (name, table.sums[name].per_second(max(len(seconds), 1)), _trend(seconds, kind, name))
            for name in table.busiest(limit, text)
        ]

    def codes(self) -> dict[str, int]:
        """Return the requests of the last minute by request code or rpc."""
        self._advance()
        counts: dict[str, int] = {}
        for second in list(self._seconds)[-1 - ROW_SECONDS : -1]:
            for code, count in second.codes.items():
                counts[code] = counts.get(code, 0) + count
        return counts

    def _advance(self) -> None:
        """Append seconds up to the current one; seconds without traffic are kept too."""
        now = int(self._clock())
        if not self._seconds or now - self._seconds[-1].at > MAX_SECONDS:
            self._clear()
            self._seconds.append(Second(now))
        while self._seconds[-1].at < now:
            self._complete()
            self._seconds.append(Second(self._seconds[-1].at + 1))
        self._current_end = now + 1
        self._current = self._seconds[-1]

    def _complete(self) -> None:
        """Complete the last second; drop the names of the second that leaves the last minute, but not its totals."""
        last = self._seconds[-1]
        last.complete()
        old = self._seconds[-1 - ROW_SECONDS] if len(self._seconds) > ROW_SECONDS else None
        for kind, table in self._name_sums.items():
            table.add(getattr(last, kind))
            if old is not None:
                table.remove(getattr(old, kind))
                getattr(old, kind).clear()

    def _clear(self) -> None:
        self._seconds.clear()
        self._current_end = 0
        for kind in self._name_sums:
            self._name_sums[kind] = NameSums()


def _trend(seconds: Iterable[Second], kind: str, name: str) -> list[int]:
    trend = []
    for second in seconds:
        sums = getattr(second, kind).get(name)
        trend.append(0 if sums is None else sums.requests)
    return trend

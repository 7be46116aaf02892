"""The last minutes of traffic, second by second; watched only while somebody looks."""

import time
from collections import deque
from collections.abc import Callable, Iterable

from proxy.admin.live.last_minute import Recent
from proxy.admin.live.traffic_second import Second
from proxy.core.events import Observation, Observer

# Seconds that are kept, and those over which topics and groups are told apart.
KEPT = 300
RECENT = 60
# Seconds after the last look for which it goes on: a page that was reloaded shall not begin anew.
LINGER = 60.0


class Traffic:
    """Sums by second. `observers` is the core's list; nothing is in it while nobody has looked for a minute."""

    def __init__(self, observers: list[Observer], clock: Callable[[], float] = time.time) -> None:
        self._observers = observers
        self._clock = clock
        self._seconds: deque[Second] = deque(maxlen=KEPT)
        self._recent = {"topics": Recent(), "groups": Recent()}
        self._looked_at = 0.0
        # The second that runs, and when it does so no more.
        self._running = Second(0)
        self._over = 0
        self._watching = False

    @property
    def watching(self) -> bool:
        return self._watching

    def look(self) -> None:
        """Somebody looks: from now on it is watched."""
        self._looked_at = self._clock()
        if not self._watching:
            self._watching = True
            self._observers.append(self.observe)

    def observe(self, seen: Observation) -> None:
        """A request has been answered."""
        if self._clock() >= self._over:
            self._second()
        self._running.add(seen)

    def tidy(self) -> None:
        """Stop watching where nobody looks any more; called every few seconds."""
        if self._watching and self._clock() - self._looked_at > LINGER:
            self._watching = False
            self._observers.remove(self.observe)
            self._forget()

    def seconds(self, since: int) -> list[dict[str, object]]:
        """The complete seconds after this one."""
        self._second()
        return [second.shown() for second in list(self._seconds)[:-1] if second.at > since]

    def latencies(self, since: int) -> dict[str, dict[str, int]]:
        """How long requests of the same seconds took (`Second.latencies`), by second, in JSON's types."""
        return {
            str(second.at): {str(place): count for place, count in second.latencies.items()}
            for second in list(self._seconds)[:-1]
            if second.at > since
        }

    def busiest(self, kind: str, limit: int, text: str = "") -> list[dict[str, object]]:
        """Topics or groups (`kind`) of the last minute whose names hold `text`, the busiest first, with what they did.

        Figures are per second; `trend` is the requests of each of the last seconds, the newest last.
        """
        self._second()
        recent = list(self._seconds)[-1 - RECENT : -1]
        table = self._recent[kind]
        return [
            {"name": name, **table.sums[name].shown(max(len(recent), 1)), "trend": _trend(recent, kind, name)}
            for name in table.busiest(limit, text)
        ]

    def codes(self) -> dict[str, int]:
        """Requests of the last minute by request code or rpc."""
        self._second()
        counts: dict[str, int] = {}
        for second in list(self._seconds)[-1 - RECENT : -1]:
            for code, count in second.codes.items():
                counts[code] = counts.get(code, 0) + count
        return counts

    def _second(self) -> None:
        """Let the second that runs be the last one; those in which nothing happened are there, too."""
        now = int(self._clock())
        if not self._seconds or now - self._seconds[-1].at > KEPT:
            self._forget()
            self._seconds.append(Second(now))
        while self._seconds[-1].at < now:
            self._complete()
            self._seconds.append(Second(self._seconds[-1].at + 1))
        self._over = now + 1
        self._running = self._seconds[-1]

    def _complete(self) -> None:
        """The last second is; of the one that is not among the `RECENT` any more, the totals stay."""
        last = self._seconds[-1]
        last.complete()
        old = self._seconds[-1 - RECENT] if len(self._seconds) > RECENT else None
        for kind, table in self._recent.items():
            table.add(getattr(last, kind))
            if old is not None:
                table.remove(getattr(old, kind))
                getattr(old, kind).clear()

    def _forget(self) -> None:
        self._seconds.clear()
        self._over = 0
        for kind in self._recent:
            self._recent[kind] = Recent()


def _trend(seconds: Iterable[Second], kind: str, name: str) -> list[int]:
    trend = []
    for second in seconds:
        sums = getattr(second, kind).get(name)
        trend.append(0 if sums is None else sums.requests)
    return trend

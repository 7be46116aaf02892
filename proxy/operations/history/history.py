"""The last hour of traffic: seconds, steps of ten seconds, and minutes by topic and group."""

import time
from collections import deque
from collections.abc import Callable, Iterable

from proxy.observability.metrics.request_counts import RequestCounts
from proxy.operations.history.counter_reader import CounterReader
from proxy.operations.history.name_sums import NameSums
from proxy.operations.history.second import Second, Sums, Table, add_to
from remoting.tasks import every

# Seconds that are kept, and seconds over which topics and groups are summed.
MAX_SECONDS = 300
ROW_SECONDS = 60
# Seconds of a step with the totals, and of one with the sums by topic and group; the steps of an hour.
STEP = 10
NAME_STEP = 60
HOUR = 3_600
# Topics, and groups, in each step; the others share one name.
_MAX_STEP_NAMES = 500
KINDS = ("topics", "groups")


class History:
    """The traffic of one process. Its memory is bounded: 300 seconds, 360 totals, 60 tables of 500 names."""

    def __init__(self, counts: RequestCounts, clock: Callable[[], float] = time.time) -> None:
        self._counts = CounterReader(counts)
        self._clock = clock
        self._next = int(clock())
        self._seconds: deque[Second] = deque(maxlen=MAX_SECONDS)
        self._steps: deque[Second] = deque(maxlen=HOUR // STEP)
        self._name_steps: deque[Second] = deque(maxlen=HOUR // NAME_STEP)
        self._name_sums = {kind: NameSums() for kind in KINDS}

    async def run(self) -> None:
        """Read the counts at the end of each second until cancelled."""
        await every(lambda: 1.0 - self._clock() % 1.0, self.sample, name="traffic history")

    def sample(self) -> None:
        """Append the seconds that are complete; all new counts belong to the last of them."""
        end = int(self._clock())
        if end == self._next:
            return
        if not 0 < end - self._next <= HOUR:
            # The clock has been set, or the machine has slept.
            self._clear()
            self._next = end - 1
        for at in range(self._next, end - 1):
            self._append(Second(at))
        self._append(self._counts.read(end - 1))
        self._next = end

    def seconds(self, since: int) -> list[Second]:
        """Return the complete seconds after this one."""
        return [second for second in self._seconds if second.at > since]

    def steps(self) -> list[Second]:
        """Return the totals of the last hour, the newest last; the last step is not complete."""
        return list(self._steps)

    def name_steps(self, kind: str, name: str) -> list[tuple[int, Sums]]:
        """Return time and sums of one topic or group in each minute of the last hour."""
        return [(step.at, getattr(step, kind).get(name) or Sums()) for step in self._name_steps]

    def busiest(self, kind: str, limit: int, text: str = "") -> list[tuple[str, dict[str, float], list[int]]]:
        """Return the busiest topics or groups (`kind`) of the last minute whose names contain `text`.

        Of each: name, figures per second, and the requests of each of the last seconds, the newest last.
        """
        seconds = self._last_minute()
        table = self._name_sums[kind]
        return [
            (name, table.sums[name].per_second(max(len(seconds), 1)), _trend(seconds, kind, name))
            for name in table.busiest(limit, text)
        ]

    def codes(self) -> dict[str, int]:
        """Return the requests of the last minute by request code or rpc."""
        counts: dict[str, int] = {}
        for second in self._last_minute():
            for code, count in second.codes.items():
                counts[code] = counts.get(code, 0) + count
        return counts

    @property
    def end(self) -> int:
        """The end of the last complete second, in seconds since 1970."""
        return self._next

    def _last_minute(self) -> list[Second]:
        return list(self._seconds)[-ROW_SECONDS:]

    def _clear(self) -> None:
        for spans in (self._seconds, self._steps, self._name_steps):
            spans.clear()
        self._name_sums = {kind: NameSums() for kind in KINDS}

    def _append(self, second: Second) -> None:
        """Append a complete second; drop the names of the second that leaves the last minute, but not its totals."""
        old = self._seconds[-ROW_SECONDS] if len(self._seconds) >= ROW_SECONDS else None
        self._seconds.append(second)
        step = _step(self._steps, second.at, STEP)
        step.add_totals(second)
        names = _step(self._name_steps, second.at, NAME_STEP)
        for kind, sums in self._name_sums.items():
            table: Table = getattr(second, kind)
            sums.add(table)
            for name, of_name in table.items():
                add_to(getattr(names, kind), name, of_name, _MAX_STEP_NAMES)
            if old is not None:
                sums.remove(getattr(old, kind))
                getattr(old, kind).clear()


def _step(steps: deque[Second], at: int, size: int) -> Second:
    """Return the step that a second belongs to."""
    start = at - at % size
    if not steps or steps[-1].at != start:
        steps.append(Second(start))
    return steps[-1]


def _trend(seconds: Iterable[Second], kind: str, name: str) -> list[int]:
    trend = []
    for second in seconds:
        sums = getattr(second, kind).get(name)
        trend.append(0 if sums is None else sums.requests)
    return trend

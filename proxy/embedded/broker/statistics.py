"""Messages and bytes by topic and group, with their figures of the last minute, hour and day.

The figures are those of RocketMQ's `StatsItem`: of the span between the first and the last of a few samples. Samples
are due at fixed times after the broker's start. A counter takes those that were due when it is next used, because its
values have not changed in the meantime.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from remoting.names import is_system

# Maximum number of topics, and of pairs of topic and group, that are counted; the oldest gives way to a new one.
_MAX_COUNTERS: Final = 10_000
# Milliseconds between samples and number of samples, by period. RocketMQ's bodies have this order.
_PERIODS: Final = {"statsDay": (3_600_000, 25), "statsHour": (600_000, 7), "statsMinute": (10_000, 7)}


class _Sample(NamedTuple):
    """Values of a counter at a time (ms)."""

    at: int
    times: int
    messages: int
    size: int


class _Period:
    """The latest samples of one counter, `interval` ms apart."""

    __slots__ = ("count", "due", "interval", "samples")

    def __init__(self, interval: int, count: int, start: int, now: int) -> None:
        self.interval, self.count = interval, count
        self.samples: deque[_Sample] = deque(maxlen=count)
        self.due = now + (start - now) % interval

    def take(self, counter: "Counter", now: int) -> None:
        """Take the samples that are due."""
        if now < self.due:
            return
        if not self.samples:
            self.samples.append(_Sample(self.due - self.interval, 0, 0, 0))
        latest = now - (now - self.due) % self.interval
        first = max(self.due, latest - self.interval * (self.count - 1))
        for at in range(first, latest + 1, self.interval):
            self.samples.append(_Sample(at, counter.times, counter.messages, counter.size))
        self.due = latest + self.interval


class Counter:
    """Messages, their bytes, and the number of times that some were added."""

    __slots__ = ("_due", "_periods", "messages", "size", "times")

    def __init__(self, start: int, now: int) -> None:
        self.messages = self.size = self.times = 0
        self._periods = {name: _Period(*period, start, now) for name, period in _PERIODS.items()}
        self._due = 0

    def add(self, messages: int, size: int, now: int) -> None:
        """Add messages with this total size."""
        if now >= self._due:
            self._take(now)
        self.messages += messages
        self.size += size
        self.times += 1

    def figures(self, value: Callable[[_Sample], int], averaged: bool, now: int) -> dict[str, dict[str, float]]:
        """Return a value's growth by period: `sum`, `tps` (per second) and `avgpt` (per time, 0 if not averaged)."""
        self._take(now)
        return {name: _growth(period.samples, value, averaged) for name, period in self._periods.items()}

    def _take(self, now: int) -> None:
        for period in self._periods.values():
            period.take(self, now)
        # The shortest period divides the others.
        self._due = self._periods["statsMinute"].due


def _growth(samples: deque[_Sample], value: Callable[[_Sample], int], averaged: bool) -> dict[str, float]:
    if not samples:
        return {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    first, last = samples[0], samples[-1]
    total, times = value(last) - value(first), last.times - first.times
    average = total / times if averaged and times else 0.0
    return {"avgpt": average, "sum": total, "tps": total * 1000 / (last.at - first.at)}


_Value = Callable[[_Sample], int]
_MESSAGES: Final[_Value] = attrgetter("messages")
_SIZE: Final[_Value] = attrgetter("size")


def _next_midnight(now: int) -> int:
    """Return the end (ms) of the day, local time; days of a change of the clocks have another length."""
    today = time.localtime(now / 1000)
    return int(time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000


class Statistics:
    """The counters of one broker, which started at `start` (ms)."""

    def __init__(self, cluster: str, start: int) -> None:
        self._cluster, self._start = cluster, start
        # Messages since the start, without those of system topics: a delayed message counts once, when it is due.
        self.counts = {"put": 0, "got": 0}
        # The same at the last midnight but one, and at the last; zero before the first.
        self.yesterday_morning, self.today_morning = dict(self.counts), dict(self.counts)
        self._next_midnight = _next_midnight(start)
        # By topic, by `topic@group`, and by cluster.
        self._stored: dict[str, Counter] = {}
        self._delivered: dict[str, Counter] = {}
        self._sent_back: dict[str, Counter] = {}
        self._all_stored: dict[str, Counter] = {}
        self._all_delivered: dict[str, Counter] = {}
        # Counters, their value, and whether it has an average, by RocketMQ's name of the statistics.
        self._values: Mapping[str, tuple[Mapping[str, Counter], _Value, bool]] = {
            "TOPIC_PUT_NUMS": (self._stored, _MESSAGES, True),
            "TOPIC_PUT_SIZE": (self._stored, _SIZE, True),
            "GROUP_GET_NUMS": (self._delivered, _MESSAGES, True),
            "GROUP_GET_SIZE": (self._delivered, _SIZE, True),
            "SNDBCK_PUT_NUMS": (self._sent_back, _MESSAGES, True),
            "BROKER_PUT_NUMS": (self._all_stored, _MESSAGES, False),
            "BROKER_GET_NUMS": (self._all_delivered, _MESSAGES, False),
        }

    def tick(self, now: int) -> None:
        """Begin a new day at midnight, local time (RocketMQ's BrokerStats)."""
        if now >= self._next_midnight:
            self.yesterday_morning, self.today_morning = self.today_morning, dict(self.counts)
            self._next_midnight = _next_midnight(now)

    def add_stored(self, topic: str, size: int, now: int) -> None:
        """Count a message that is stored in a topic."""
        if not is_system(topic):
            self.counts["put"] += 1
        self._counter(self._all_stored, self._cluster, now).add(1, size, now)
        self._counter(self._stored, topic, now).add(1, size, now)

    def add_delivered(self, topic: str, group: str, records: list[bytes], now: int) -> None:
        """Count the messages of a response to a consumer."""
        if records:
            size = sum(map(len, records))
            if not is_system(topic):
                self.counts["got"] += len(records)
            self._counter(self._all_delivered, self._cluster, now).add(len(records), size, now)
            self._counter(self._delivered, f"{topic}@{group}", now).add(len(records), size, now)

    def add_sent_back(self, topic: str, group: str, size: int, now: int) -> None:
        """Count a message that a consumer sends back."""
        self._counter(self._sent_back, f"{topic}@{group}", now).add(1, size, now)

    def figures(self, name: str, key: str, now: int) -> dict[str, dict[str, float]] | None:
        """Return figures by RocketMQ's name and key: a topic, `topic@group` or the cluster. None if nothing counted."""
        if name not in self._values:
            return None
        counters, value, averaged = self._values[name]
        counter = counters.get(key)
        return None if counter is None else counter.figures(value, averaged, now)

    def rate(self, name: str, key: str, now: int) -> float:
        """Return messages per second in the last minute, by RocketMQ's name and key."""
        figures = self.figures(name, key, now)
        return 0.0 if figures is None else figures["statsMinute"]["tps"]

    def drop_topic(self, topic: str) -> None:
        """Remove the counters of a topic."""
        self._stored.pop(topic, None)
        for counters in (self._delivered, self._sent_back):
            for key in [key for key in counters if key.startswith(f"{topic}@")]:
                del counters[key]

    def _counter(self, counters: dict[str, Counter], key: str, now: int) -> Counter:
        counter = counters.get(key)
        if counter is None:
            if len(counters) >= _MAX_COUNTERS:
                del counters[next(iter(counters))]
            counter = counters[key] = Counter(self._start, now)
        return counter

"""Aggregation of the snapshots of several processes into time series that never decrease.

Each snapshot of a process is compared with its previous one, and the increase is added to the series. A process may
therefore end without a decrease of the sums, which Prometheus would take for a restart and count the whole remainder
again. An increase is assigned to a series when it is added and is never moved: a topic that loses its series is counted
as `__other__` from then on, and a topic that gains one starts with the increase of that snapshot. Nothing is counted
twice. A series that was dropped and returns starts at zero, as after a restart; that can hide an increase only from
queries over more than the idle time.

Gauges, such as backlogs, select further values of their own: a backlog that stands for weeks takes no series of a topic
with traffic, and a topic with traffic takes none of a backlog.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Merge, Samples, Snapshot, Value
from proxy.observability.metrics.label_limiter import LabelLimiter

# Labels whose values clients choose, or that change as brokers come and go.
LIMITED = frozenset({"topic", "consumer_group", "broker", "language", "version"})

_Series = dict[Labels, Value]
_MERGES: Mapping[Merge, Callable[[float, float], float]] = {
    Merge.SUM: lambda first, second: first + second,
    Merge.MAX: max,
    Merge.MIN: min,
}


@dataclass(slots=True)
class _Source:
    """The last snapshot of a process: counters and histograms, and gauges, by family name."""

    counted: dict[str, Samples] = field(default_factory=dict)
    gauges: dict[str, Samples] = field(default_factory=dict)


class SeriesAggregator:
    """Time series of all processes.

    max_values, idle: limits of the values of each label in `LIMITED`, see `LabelLimiter`. clock: returns seconds.
    """

    def __init__(self, max_values: int, idle: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._families: dict[str, Family] = {}
        self._sources: dict[str, _Source] = {}
        self._series: defaultdict[str, _Series] = defaultdict(dict)
        self._limiters = {label: LabelLimiter(max_values, idle) for label in LIMITED}
        self._gauge_limiters = {label: LabelLimiter(max_values, idle) for label in LIMITED}

    def add_snapshot(self, source: str, snapshot: Snapshot) -> None:
        """Add the increase since the source's previous snapshot."""
        previous = self._sources.setdefault(source, _Source())
        increases: list[tuple[Family, _Series]] = []
        shares: list[tuple[Family, _Series]] = []
        for family, samples in snapshot:
            self._families[family.name] = family
            if family.kind is Kind.GAUGE:
                previous.gauges[family.name] = samples
                shares.append((family, _shares(samples)))
            else:
                increases.append((family, _increase(samples, previous.counted.get(family.name, {}))))
                previous.counted[family.name] = samples
        for label, dropped in self._update(self._limiters, increases):
            self._drop(label, dropped)
        # Gauges have no series between snapshots that could be dropped.
        list(self._update(self._gauge_limiters, shares))
        for family, increase in increases:
            self._add(family, increase)

    def remove_source(self, source: str) -> None:
        """Remove a process that has ended: its counts remain, its gauges do not, and its successor starts at zero."""
        self._sources.pop(source, None)

    def series(self) -> Iterator[tuple[Family, Samples]]:
        """Yield every family with its time series."""
        for family in list(self._families.values()):
            yield family, self._merged_gauge(family) if family.kind is Kind.GAUGE else self._series[family.name]

    def _update(
        self, limiters: dict[str, LabelLimiter], amounts: list[tuple[Family, _Series]]
    ) -> Iterator[tuple[str, set[str]]]:
        """Select the label values with series of their own; yield those of each label that lost theirs."""
        traffic: dict[str, defaultdict[str, float]] = {label: defaultdict(float) for label in LIMITED}
        for family, series in amounts:
            for position, label in enumerate(family.labels):
                if label in LIMITED:
                    for key, value in series.items():
                        traffic[label][key[position]] += _amount(value)
        now = self._clock()
        for label, limiter in limiters.items():
            dropped = limiter.update(traffic[label], now)
            if dropped:
                yield label, dropped

    def _drop(self, label: str, values: set[str]) -> None:
        for family in self._families.values():
            if label in family.labels:
                position = family.labels.index(label)
                series = self._series[family.name]
                for key in [key for key in series if key[position] in values]:
                    del series[key]

    def _add(self, family: Family, increase: _Series) -> None:
        series = self._series[family.name]
        for key, value in increase.items():
            limited = self._limit(family, key)
            current = series.get(limited)
            if current is None and limited != key and not _amount(value):
                # No series for `OTHER` before it has traffic.
                continue
            if isinstance(value, Distribution):
                if isinstance(current, Distribution):
                    current.add(value)
                else:
                    series[limited] = value.copy()
            else:
                series[limited] = value + current if isinstance(current, float | int) else value

    def _merged_gauge(self, family: Family) -> Samples:
        merge = _MERGES[family.merge]
        merged: dict[Labels, Value] = {}
        for source in self._sources.values():
            for key, value in source.gauges.get(family.name, {}).items():
                assert not isinstance(value, Distribution)
                limited = self._limit(family, key)
                current = merged.get(limited)
                merged[limited] = merge(current, value) if isinstance(current, float | int) else value
        return merged

    def _limit(self, family: Family, key: Labels) -> Labels:
        if LIMITED.isdisjoint(family.labels):
            return key
        return tuple(
            self._label(family, label, value) if label in LIMITED else value
            for label, value in zip(family.labels, key, strict=True)
        )

    def _label(self, family: Family, label: str, value: str) -> str:
        limited = self._limiters[label].label(value)
        if limited == value or family.kind is not Kind.GAUGE:
            return limited
        return self._gauge_limiters[label].label(value)


def _amount(value: Value) -> float:
    return sum(value.counts) if isinstance(value, Distribution) else value


def _shares(samples: Samples) -> _Series:
    """Return each value's share of a gauge's sum: gauges have different units."""
    total = sum(_amount(value) for value in samples.values())
    return {key: _amount(value) / total for key, value in samples.items()} if total > 0 else {}


def _increase(samples: Samples, previous: Samples) -> _Series:
    """Return the increase by label values. A count below the previous one was restarted, and all of it is new."""
    increase: _Series = {}
    for key, value in samples.items():
        former = previous.get(key)
        if isinstance(value, Distribution):
            increase[key] = value.since(former) if isinstance(former, Distribution) else value
        elif isinstance(former, float | int) and value >= former:
            increase[key] = value - former
        else:
            increase[key] = value
    return increase

"""The ledger: what several processes have counted, as one, in series that never go backwards.

Processes hand in snapshots, and what has been added since the last one is written to the series. So a process may end
without its counts being lost (Prometheus would take the fall for a restart, and the whole rest for new), and the
series that is chosen for a count never changes afterwards: a topic that loses its series has what comes from then on
counted as `__other__`, and one that gains a series begins it with what came now. Nothing is counted twice, nothing
moves from one series to another. A series that was dropped and comes back begins anew, as after a restart; that can
hide an increase only from a query that looks further back than the idle time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Merge, Samples, Snapshot, Value
from proxy.observability.metrics.label_limiter import Shown

# Labels whose values clients choose, or that change as brokers come and go.
LIMITED = frozenset({"topic", "consumer_group", "broker", "language", "version"})

_Series = dict[Labels, Value]
_MERGES: Mapping[Merge, Callable[[float, float], float]] = {
    Merge.SUM: lambda one, other: one + other,
    Merge.MAX: max,
    Merge.MIN: min,
}


@dataclass(slots=True)
class _Source:
    """One process: what it said last."""

    counted: dict[str, Samples] = field(default_factory=dict)
    gauges: dict[str, Samples] = field(default_factory=dict)


class SeriesAggregator:
    """Series of all processes. most, idle: see `Shown`, for each of the labels in `LIMITED`. clock: seconds."""

    def __init__(self, most: int, idle: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._families: dict[str, Family] = {}
        self._sources: dict[str, _Source] = {}
        self._series: defaultdict[str, _Series] = defaultdict(dict)
        self._shown = {label: Shown(most, idle) for label in LIMITED}

    def feed(self, source: str, snapshot: Snapshot) -> None:
        """Take in what a process has counted since it started."""
        known = self._sources.setdefault(source, _Source())
        news: list[tuple[Family, _Series]] = []
        for family, samples in snapshot:
            self._families[family.name] = family
            if family.kind is Kind.GAUGE:
                known.gauges[family.name] = samples
                news.append((family, dict(samples)))
            else:
                news.append((family, _news(samples, known.counted.get(family.name, {}))))
                known.counted[family.name] = samples
        self._choose(news)
        for family, added in news:
            if family.kind is not Kind.GAUGE:
                self._add(family, added)

    def forget(self, source: str) -> None:
        """A process has ended: what it counted stays, its gauges go, and its successor begins at nothing."""
        self._sources.pop(source, None)

    def series(self) -> Iterator[tuple[Family, Samples]]:
        """Everything, as it is to be shown."""
        for family in list(self._families.values()):
            yield family, self._merged(family) if family.kind is Kind.GAUGE else self._series[family.name]

    def _choose(self, news: list[tuple[Family, _Series]]) -> None:
        """Decide, before anything is written, whose series it is written to."""
        traffic: dict[str, defaultdict[str, float]] = {label: defaultdict(float) for label in LIMITED}
        for family, added in news:
            for position, label in enumerate(family.labels):
                if label in LIMITED:
                    for key, value in added.items():
                        traffic[label][key[position]] += _amount(value)
        now = self._clock()
        for label, shown in self._shown.items():
            dropped = shown.note(traffic[label], now)
            if dropped:
                self._drop(label, dropped)

    def _drop(self, label: str, values: set[str]) -> None:
        for family in self._families.values():
            if label in family.labels:
                position = family.labels.index(label)
                series = self._series[family.name]
                for key in [key for key in series if key[position] in values]:
                    del series[key]

    def _add(self, family: Family, added: _Series) -> None:
        series = self._series[family.name]
        for key, value in added.items():
            name = self._name(family, key)
            known = series.get(name)
            if known is None and name != key and not _amount(value):
                # Nothing came of somebody who is not shown.
                continue
            if isinstance(value, Distribution):
                if isinstance(known, Distribution):
                    known.add(value)
                else:
                    series[name] = value.copy()
            else:
                series[name] = value + known if isinstance(known, float | int) else value

    def _merged(self, family: Family) -> Samples:
        merge = _MERGES[family.merge]
        merged: dict[Labels, Value] = {}
        for source in self._sources.values():
            for key, value in source.gauges.get(family.name, {}).items():
                assert not isinstance(value, Distribution)
                name = self._name(family, key)
                known = merged.get(name)
                merged[name] = merge(known, value) if isinstance(known, float | int) else value
        return merged

    def _name(self, family: Family, key: Labels) -> Labels:
        if LIMITED.isdisjoint(family.labels):
            return key
        return tuple(
            self._shown[label].name(value) if label in LIMITED else value
            for label, value in zip(family.labels, key, strict=True)
        )


def _amount(value: Value) -> float:
    return sum(value.counts) if isinstance(value, Distribution) else value


def _news(samples: Samples, former: Samples) -> _Series:
    """What came since, by label values; all of it where a count is lower than it was, so that it must be another."""
    news: _Series = {}
    for key, value in samples.items():
        then = former.get(key)
        if isinstance(value, Distribution):
            news[key] = value.since(then) if isinstance(then, Distribution) else value
        elif isinstance(then, float | int) and value >= then:
            news[key] = value - then
        else:
            news[key] = value
    return news

"""Metric families, their values and snapshots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Types of metrics, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """Ways to merge the gauges of several processes. Counters and histograms are always added."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its labels.

    Attributes:
        name: name of the metric; of a counter, without `_total`.
        help: HELP text for operators: the counted events or values, and their unit.
        labels: names of the labels.
        merge: way to merge a gauge of several processes.
        bounds: upper bounds of a histogram's buckets; the last bucket has none.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()

    @property
    def series_name(self) -> str:
        """Name of the time series in queries."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


# An example request of a bucket: trace id, seconds, time in seconds since 1970.
Exemplar = tuple[str, float, float]


@dataclass(slots=True)
class Distribution:
    """Value of a histogram.

    Attributes:
        counts: number of observations by bucket, not cumulative.
        total: sum of the observations.
        exemplars: by index of the bucket.
    """

    counts: list[int]
    total: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> "Distribution":
        """Return a distribution without observations."""
        return cls([0] * (len(bounds) + 1))

    def add(self, other: "Distribution") -> None:
        """Add the observations of another distribution with the same bounds."""
        self.counts = [count + added for count, added in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.exemplars |= other.exemplars

    def since(self, previous: "Distribution") -> "Distribution":
        """Return the observations after `previous`; all of them if a count has fallen, which a restart causes."""
        counts = [count - former for count, former in zip(self.counts, previous.counts, strict=True)]
        if min(counts) < 0:
            return Distribution(list(self.counts), self.total, self.exemplars)
        return Distribution(counts, self.total - previous.total, self.exemplars)

    def copy(self) -> "Distribution":
        """Return a copy that does not change."""
        return Distribution(list(self.counts), self.total, dict(self.exemplars))


Value = float | Distribution
Labels = tuple[str, ...]
# Counters since the start of a process and its current gauges, by label values.
Samples = Mapping[Labels, Value]
Snapshot = Sequence[tuple[Family, Samples]]
# The contract of a part with metrics: yields its families with their samples. The registry does not change the samples.
Source = Callable[[], Iterable[tuple[Family, Samples]]]


def by_label(counts: Mapping[str, float]) -> Samples:
    """Return the samples of a family with one label, from values by this label."""
    return {(label,): value for label, value in counts.items()}

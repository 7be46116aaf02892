"""What a metric is, said once, beside the code that counts it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """What a gauge of several processes comes to. Counters and histograms are always added."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, with its labels.

    name: a counter's without `_total`. text: what it counts, and so what makes it move. bounds: the upper bounds of a
    histogram's buckets but the last one, which has none.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name as queries have it."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


# A request that stands for its bucket: trace id, seconds, when (seconds since 1970).
Exemplar = tuple[str, float, float]


@dataclass(slots=True)
class Distribution:
    """A histogram's value. counts: per bucket, each without those below. exemplars: by bucket."""

    counts: list[int]
    total: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)

    @classmethod
    def over(cls, bounds: Sequence[float]) -> "Distribution":
        """An empty one."""
        return cls([0] * (len(bounds) + 1))

    def add(self, other: "Distribution") -> None:
        """Take another's in."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.exemplars |= other.exemplars

    def since(self, former: "Distribution") -> "Distribution":
        """What came after `former`; all of it where `former` cannot have come before."""
        counts = [now - then for now, then in zip(self.counts, former.counts, strict=True)]
        if min(counts) < 0:
            return Distribution(list(self.counts), self.total, self.exemplars)
        return Distribution(counts, self.total - former.total, self.exemplars)

    def copy(self) -> "Distribution":
        """As it is now."""
        return Distribution(list(self.counts), self.total, dict(self.exemplars))


Value = float | Distribution
Labels = tuple[str, ...]
# What one process has counted since it started, and its gauges now.
Samples = Mapping[Labels, Value]
Snapshot = Sequence[tuple[Family, Samples]]

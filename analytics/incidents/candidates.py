"""The values of one dimension that have bad events, and the likeliest cluster of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analytics.incidents.exposure import WHOLE, Exposure
from analytics.incidents.spans import NEW, Limits, worst_spans
from analytics.incidents.statistics import Array, likelihood
from analytics.incidents.tables import SEPARATOR

# Dimensions whose other values are the measure: all of them do the same work.
_COMPARED = frozenset({"replica", "broker", "sdk"})
# Least number of expected events of a value that counts, and the highest share of them in a value that is fine.
_TELLING, FINE = 4.0, 0.4


@dataclass(frozen=True, slots=True)
class Cluster:
    """Bad events of one scope. start, end: periods; events: the rows that belong to it."""

    scope: Mapping[str, str]
    start: int
    end: int
    bad: float
    total: float
    expected: float
    likelihood: float
    events: pd.DataFrame
    # The first period from which the onset is estimated: a tenth of the records before it, or its length.
    before: int
    # Bad events and requests of every period, without the events of other clusters.
    bad_series: Array
    total_series: Array


@dataclass(frozen=True)
class Candidates:
    """The values of a dimension with enough bad events, each with its worst span.

    Attributes:
        name: the dimension.
        exposure: requests of all values of all dimensions.
        rest: the events, with a row for each period and combination of values.
        codes: the value of each event, as its place in the dimension; -1 without one.
        known: which events count and have a value.
        rows: places of the candidates in the dimension.
        bad, total: bad events and requests by candidate and period.
        evidence: rows of records by candidate and period; under sampling, a row stands for several events.
        start, end: the periods of each candidate's worst span.
        usual: each candidate's share of bad events outside of the span.
    """

    name: str
    exposure: Exposure
    rest: pd.DataFrame
    codes: Array
    known: Array
    rows: Array
    bad: Array
    total: Array
    evidence: Array
    start: Array
    end: Array
    usual: Array

    @classmethod
    def of(
        cls,
        name: str,
        exposure: Exposure,
        rest: pd.DataFrame,
        codes: Array,
        kept: Array,
        limits: Limits,
        former: Sequence[Cluster],
    ) -> "Candidates | None":
        """Return the candidates of a dimension; None without one. former: clusters whose events are not kept."""
        known = kept & (codes >= 0)
        amount, counts = rest["n"].to_numpy(float), exposure.counts[name]
        rows = np.flatnonzero(np.bincount(codes[known], amount[known], len(counts)) >= limits.events)
        if not known.any() or not rows.size:
            return None
        place = np.full(len(counts), -1)
        place[rows] = np.arange(rows.size)
        inside = known & (place[np.maximum(codes, 0)] >= 0)
        flat = place[codes[inside]] * exposure.periods + (rest["t"].to_numpy()[inside] - exposure.first)
        bad, evidence = (
            np.bincount(flat, rest[column].to_numpy(float)[inside], rows.size * exposure.periods).reshape(
                rows.size, exposure.periods
            )
            for column in ("n", "rows_")
        )
        total = counts[rows]
        for cluster in former:
            # Without its events, the requests of its span would make all others look bad.
            own = _inside(name, exposure.values[name][rows], cluster.scope)
            total[own, cluster.start : cluster.end] = 0.0
        common: float | Array = amount[kept].sum() / max(exposure.all, 1.0)
        if name in _COMPARED:
            # A replica that is slow from the first record to the last one is compared with the others.
            others = np.maximum(counts.sum() - total.sum(axis=1), 0.0)
            common = np.maximum(amount[known].sum() - bad.sum(axis=1), 0.0) / np.maximum(others, 1.0)
        # A version that is bad from its first request on has no usual share of its own.
        new = (total[:, :NEW].sum(axis=1) == 0) & (name == "sdk")
        compared = np.full(rows.size, name in _COMPARED)
        spans = worst_spans(bad, total, np.maximum(common, limits.floor), limits, new | compared)
        return cls(name, exposure, rest, codes, known, rows, bad, total, evidence, *spans)

    @cached_property
    def _mask(self) -> Array:
        """The periods of each candidate's span."""
        span = np.arange(self.exposure.periods)
        return (span >= self.start[:, None]) & (span < self.end[:, None])

    @cached_property
    def _seen(self) -> Array:
        """Bad events of the spans."""
        return np.asarray((self.bad * self._mask).sum(axis=1))

    @cached_property
    def _requests(self) -> Array:
        """Requests of the spans."""
        return np.asarray((self.total * self._mask).sum(axis=1))

    @cached_property
    def _expected(self) -> Array:
        """Usual number of bad events of the spans."""
        return self.usual * self._requests

    @cached_property
    def _sampling(self) -> Array:
        """Rows of the spans for each bad event: the rows are the evidence."""
        return np.asarray(np.minimum((self.evidence * self._mask).sum(axis=1) / np.maximum(self._seen, 1e-9), 1.0))

    @cached_property
    def scores(self) -> Array:
        """Likelihood of each candidate's span; 0 if it has fewer events than usual."""
        pairs = zip(self._seen * self._sampling, self._expected * self._sampling, strict=True)
        return np.array([likelihood(count, mean) if count > mean else 0.0 for count, mean in pairs])

    def acceptable(self, limits: Limits) -> Array:
        """Return which candidates exceed the limits and, where the values do the same work, another value."""
        fine = (
            (self._seen * self._sampling >= limits.events)
            & (self._seen - self._expected >= limits.share * self._requests)
            & (self._seen >= limits.ratio * self._expected)
            & (self.scores >= limits.likelihood)
        )
        return fine & self._exceeds_others(fine) if self.name in _COMPARED else fine

    def best(self, limits: Limits) -> Cluster | None:
        """Return the likeliest acceptable candidate as a cluster; None without one."""
        fine = self.acceptable(limits)
        if not fine.any():
            return None
        row = int(np.argmax(np.where(fine, self.scores, -1.0)))
        start, end = int(self.start[row]), int(self.end[row])
        # One period around belongs to the cluster.
        member = self.known & (self.codes == self.rows[row]) & (self._periods >= start - 1) & (self._periods < end + 1)
        return Cluster(
            scope=_scope_of(self.name, str(self.exposure.values[self.name][self.rows[row]])),
            start=start,
            end=end,
            bad=float(self._seen[row]),
            total=float(self._requests[row]),
            expected=float(self._expected[row]),
            likelihood=float(self.scores[row]),
            events=self.rest[member],
            before=max(start - max(self.exposure.periods // 10, 12, end - start), 0),
            bad_series=self.bad[row],
            total_series=self.total[row],
        )

    @cached_property
    def _periods(self) -> Array:
        """The period of each event."""
        return np.asarray(self.rest["t"].to_numpy() - self.exposure.first)

    def _exceeds_others(self, asked: Array) -> Array:
        """Return which of the candidates asked for exceed another value in their own span: if all values fail,
        none of them is the cause.
        """
        counts, amount = self.exposure.counts[self.name], self.rest["n"].to_numpy(float)
        result = np.zeros(self.rows.size, dtype=bool)
        for place in np.flatnonzero(asked):
            start, end, row = self.start[place], self.end[place], self.rows[place]
            during = self.known & (self._periods >= start) & (self._periods < end)
            bad = np.bincount(self.codes[during], amount[during], len(counts))
            total = counts[:, start:end].sum(axis=1)
            others = np.delete(multiples(bad[row] / max(total[row], 1.0), bad, total), row)
            others = others[~np.isnan(others)]
            result[place] = not others.size or others.min() <= FINE
        return result


def multiples(share: float, bad: Array, total: Array) -> Array:
    """Return the ratio of each value's bad events to this share of its requests; NaN for values with too few
    requests.
    """
    expected = share * total
    return np.where(expected >= _TELLING, bad / np.maximum(expected, 1e-9), np.nan)


def _inside(name: str, values: pd.Index, scope: Mapping[str, str]) -> Array:
    """Return which values of a dimension are parts of a scope."""
    names = name.split("+")
    if not set(scope) <= set(names):
        return np.zeros(len(values), dtype=bool)
    places = [(names.index(each), value) for each, value in scope.items()]
    split = [str(value).split(SEPARATOR) for value in values]
    return np.array([all(parts[place] == value for place, value in places) for parts in split], dtype=bool)


def _scope_of(name: str, value: str) -> dict[str, str]:
    return {} if name == WHOLE else dict(zip(name.split("+"), value.split(SEPARATOR), strict=True))


def narrowed(cluster: Cluster, columns: Sequence[str], least: float = 0.95) -> dict[str, str]:
    """Return the cluster's scope with all that its events have in common."""
    about = dict(cluster.scope)
    total = cluster.events["n"].sum()
    for name in columns:
        if name in about or not len(cluster.events):
            continue
        sums = cluster.events.groupby(name, dropna=False)["n"].sum()
        top = sums.idxmax()
        if sums.max() >= least * total and isinstance(top, str):
            about[name] = top
    return about

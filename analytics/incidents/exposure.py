"""Requests of every value of every dimension, with which bad events are compared."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd

from analytics.incidents.statistics import Array, smoothed
from analytics.incidents.tables import SEPARATOR, STEP

# Dimensions that explain something only in contrast with another value.
CONTRASTED = frozenset({"replica", "broker", "sdk", "network", "tenant"})
# The dimension whose only value is all requests.
WHOLE = ""
# Dimensions of which a topic's requests, or its requests to the broker, are a part.
_PARTS = frozenset({"broker", "tenant"})


class Exposure:
    """Requests of every value of every dimension, by period."""

    def __init__(self, first: int, periods: int) -> None:
        self.first, self.periods = first, periods
        self.values: dict[str, pd.Index] = {}
        self.counts: dict[str, Array] = {}

    @classmethod
    def of(cls, totals: pd.DataFrame, column: str, dimensions: Sequence[str], first: int, periods: int) -> "Exposure":
        """Return the exposure of totals: a row for each value and period, with its dimension."""
        made = cls(first, periods)
        used = totals[totals["dimension"].isin(dimensions) & (totals[column] > 0)]
        for dimension, part in used.groupby("dimension"):
            codes, values = pd.factorize(part["value"])
            flat = codes * periods + (part["t"].to_numpy() - first)
            counts = np.bincount(flat, part[column].to_numpy(), len(values) * periods).reshape(len(values), periods)
            if "rows_" in part:
                rows = np.bincount(flat, part["rows_"].to_numpy(), counts.size).reshape(counts.shape)
                _smooth_sampled(counts, rows)
            made.add(str(dimension), pd.Index(values), counts)
            if dimension == "replica":
                made.add(WHOLE, pd.Index([""]), counts.sum(axis=0)[None, :])
        return made

    def add(self, dimension: str, values: pd.Index, counts: Array) -> None:
        """Add a dimension. counts: the requests of its values, by period."""
        # The only replica is no better explanation than all requests.
        if len(values) > 1 or dimension not in CONTRASTED:
            self.values[dimension], self.counts[dimension] = values, counts

    @contextmanager
    def without(self, wide: Mapping[str, str], narrow: Mapping[str, str]) -> Iterator[bool]:
        """Leave out a topic's requests to a broker, or of a tenant, meanwhile: one busy topic is most of a broker's.

        Yields whether they are left out: of other scopes they are not known.
        """
        if not wide:
            # Of the whole service.
            yield False
            return
        (dimension, value), *others = wide.items()
        part = {**narrow, dimension: value} if dimension == "broker" else narrow
        fits = not others and part.get("topic") and set(part) <= {"topic", dimension} and dimension in _PARTS
        inner = self._row("+".join(name for name in ("topic", "broker") if name in part), part) if fits else None
        outer = self._row(dimension, wide)
        if inner is None or outer is None:
            yield False
            return
        kept = outer.copy()
        np.maximum(outer - inner, 0.0, out=outer)
        try:
            yield True
        finally:
            outer[:] = kept

    def requests(self, scope: Mapping[str, str]) -> Array:
        """Return the requests of a scope by period."""
        row = self._row("+".join(scope), scope)
        return np.zeros(self.periods) if row is None else row

    def _row(self, dimension: str, scope: Mapping[str, str]) -> Array | None:
        """Return the requests of a value by period, not copied; None if it has none."""
        values = self.values.get(dimension)
        name = SEPARATOR.join(scope[each] for each in dimension.split("+")) if dimension != WHOLE else WHOLE
        return self.counts[dimension][values.get_loc(name)] if values is not None and name in values else None

    @property
    def all(self) -> float:
        """Requests in all, of the dimension that covers most of them."""
        return max((float(counts.sum()) for counts in self.counts.values()), default=0.0)


def _smooth_sampled(counts: Array, rows: Array) -> None:
    """Average the requests of values with few rows of many requests over as many periods as have some rows.

    Failures are all recorded: in a period that happens to have no sampled success, they would be all requests.
    """
    for place in np.flatnonzero(counts.sum(axis=1) >= _SAMPLED * rows.sum(axis=1)):
        alive = np.flatnonzero(rows[place])
        if alive.size < 2:
            continue
        span = slice(alive[0], alive[-1] + 1)
        series = counts[place, span]
        # Requests of a typical row: that many times a Poisson count's is the variance. Polls are not sampled.
        weight = np.mean(np.diff(series) ** 2) / 2 / series.mean()
        counts[place, span] = smoothed(series, min(int(np.ceil(_ROWS * weight / series.mean())), _WIDEST))


# Mean requests of a row in sampled records; least rows in the periods that are averaged, and most periods: an hour.
_SAMPLED, _ROWS, _WIDEST = 2.0, 10.0, 3600 // STEP

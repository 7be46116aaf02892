"""Scan of bad events over time and over all dimensions at once: which value of which dimension explains them best.

The scope with the largest likelihood ratio is the narrowest one that covers the events: a client whose requests all
fail beats its topic, a broker beats its topics. It is taken, its events are removed, and the scan is repeated on the
rest: one cause is found once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analytics.incidents.statistics import Array, best_intervals, gains, likelihood
from analytics.incidents.tables import SEPARATOR, joined


@dataclass(frozen=True, slots=True)
class Limits:
    """When a cluster counts. factor: of the rate for which the CUSUM is made; events, share, ratio, likelihood: least
    number of bad events, least excess as a share of the requests, least ratio to the usual, least likelihood ratio.
    floor: lowest usual share.
    """

    factor: float = 2.0
    events: float = 8.0
    share: float = 0.01
    ratio: float = 2.5
    likelihood: float = 16.0
    floor: float = 5e-4
    most: int = 40


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
    # Bad events and requests of each period from start to end, and of a tenth of the records before.
    before: int
    bad_series: Array
    total_series: Array


# Dimensions that explain something only in contrast with another value.
_CONTRASTED = frozenset({"replica", "broker", "sdk", "network", "tenant"})


class Exposure:
    """Requests of every value of every dimension, by period."""

    def __init__(self, totals: pd.DataFrame, column: str, dimensions: Sequence[str], first: int, periods: int) -> None:
        self.first, self.periods = first, periods
        used = totals[totals["dimension"].isin(dimensions) & (totals[column] > 0)]
        self.values: dict[str, pd.Index] = {}
        self.counts: dict[str, Array] = {}
        for dimension, part in used.groupby("dimension"):
            codes, values = pd.factorize(part["value"])
            if len(values) == 1 and dimension in _CONTRASTED:
                # The only replica is no better explanation than all requests.
                continue
            flat = codes * periods + (part["t"].to_numpy() - first)
            counts = np.bincount(flat, part[column].to_numpy(), len(values) * periods)
            self.values[str(dimension)] = pd.Index(values)
            self.counts[str(dimension)] = counts.reshape(len(values), periods)

    @property
    def all(self) -> float:
        """Requests in all, of the dimension that covers most of them."""
        return max((float(counts.sum()) for counts in self.counts.values()), default=0.0)


def scan(
    events: pd.DataFrame, exposure: Exposure, limits: Limits, favoured: Mapping[str, frozenset[str]] | None = None
) -> list[Cluster]:
    """Return the clusters of bad events, each event in one at most. events: t, n and the columns of the dimensions.

    favoured: values of a dimension that win against equally likely scopes, such as versions that are new.
    """
    rest = events[(events["t"] >= exposure.first) & (events["t"] < exposure.first + exposure.periods)]
    rest = rest.reset_index(drop=True)
    codes = {
        name: values.get_indexer(pd.Index(joined(rest, tuple(name.split("+")))))
        for name, values in exposure.values.items()
    }
    kept = np.ones(len(rest), dtype=bool)
    found: list[Cluster] = []
    while len(found) < limits.most:
        best: Cluster | None = None
        weight = 0.0
        for name in exposure.values:
            cluster = _best(name, rest, codes[name], kept, exposure, limits)
            if cluster is None:
                continue
            bonus = 1.02 if cluster.scope.get(name) in (favoured or {}).get(name, ()) else 1.0
            bonus *= _PREFERENCE.get(name, 1.0)
            if cluster.likelihood * bonus > weight:
                best, weight = cluster, cluster.likelihood * bonus
        if best is None:
            break
        kept[best.events.index] = False
        found.append(best)
    return found


# Of equally likely scopes, the one that an operator would name.
_PREFERENCE = {"broker": 1.01, "replica": 1.01, "topic": 1.008, "grp": 1.006, "topic+broker": 1.004, "client": 1.002}


def _best(
    name: str, rest: pd.DataFrame, codes: Array, kept: Array, exposure: Exposure, limits: Limits
) -> Cluster | None:
    known = kept & (codes >= 0)
    if not known.any():
        return None
    counts = exposure.counts[name]
    amount, evidence = rest["n"].to_numpy(float), rest["rows_"].to_numpy(float)
    sums = np.bincount(codes[known], amount[known], len(counts))
    rows = np.flatnonzero(sums >= limits.events)
    if not rows.size:
        return None
    place = np.full(len(counts), -1)
    place[rows] = np.arange(rows.size)
    inside = known & (place[np.maximum(codes, 0)] >= 0)
    flat = place[codes[inside]] * exposure.periods + (rest["t"].to_numpy()[inside] - exposure.first)
    bad = np.bincount(flat, amount[inside], rows.size * exposure.periods).reshape(rows.size, exposure.periods)
    total = counts[rows]
    common = amount[kept].sum() / max(exposure.all, 1.0)
    start, end, usual = _spans(bad, total, max(common, limits.floor), limits)
    span = np.arange(exposure.periods)
    mask = (span >= start[:, None]) & (span < end[:, None])
    seen, requests = (bad * mask).sum(axis=1), (total * mask).sum(axis=1)
    expected = usual * requests
    # Sampled rows stand for several events: the rows are the evidence.
    rows_seen = np.bincount(flat, evidence[inside], rows.size * exposure.periods).reshape(bad.shape)
    sampling = np.minimum((rows_seen * mask).sum(axis=1) / np.maximum(seen, 1e-9), 1.0)
    ratios = zip(seen * sampling, expected * sampling, strict=True)
    scores = np.array([likelihood(count, mean) if count > mean else 0.0 for count, mean in ratios])
    fine = (
        (seen * sampling >= limits.events)
        & (seen - expected >= limits.share * requests)
        & (seen >= limits.ratio * expected)
        & (scores >= limits.likelihood)
    )
    if not fine.any():
        return None
    row = int(np.argmax(np.where(fine, scores, -1.0)))
    periods = rest["t"].to_numpy() - exposure.first
    # One period around belongs to the cluster.
    member = known & (codes == rows[row]) & (periods >= start[row] - 1) & (periods < end[row] + 1)
    before = max(int(start[row]) - max(exposure.periods // 10, 12, int(end[row] - start[row])), 0)
    return Cluster(
        dict(zip(name.split("+"), str(exposure.values[name][rows[row]]).split(SEPARATOR), strict=True)),
        int(start[row]),
        int(end[row]),
        float(seen[row]),
        float(requests[row]),
        float(expected[row]),
        float(scores[row]),
        rest[member],
        before,
        bad[row, before : end[row]],
        total[row, before : end[row]],
    )


def _spans(bad: Array, total: Array, common: float, limits: Limits) -> tuple[Array, Array, Array]:
    """Return start and end of each row's worst span, and the usual share outside of it."""
    prior = 200.0
    usual = (bad.sum(axis=1) + prior * common) / (total.sum(axis=1) + prior)
    start, end = np.zeros(len(bad), int), np.zeros(len(bad), int)
    span = np.arange(bad.shape[1])
    factor = np.full((len(bad), 1), limits.factor)
    for _ in range(4):
        usual = np.maximum(usual, limits.floor)
        start, end, _ = best_intervals(gains(bad, total * usual[:, None], factor))
        inside = (span >= start[:, None]) & (span < end[:, None])
        # The change that was found is sharper than the least one: then stray events before it do not belong to it.
        ratio = (bad * inside).sum(axis=1) / np.maximum((total * inside).sum(axis=1) * usual, 1e-9)
        factor = np.clip(ratio / 3, limits.factor, 100.0)[:, None]
        outside = (span < start[:, None]) | (span >= end[:, None])
        usual = ((bad * outside).sum(axis=1) + prior * common) / ((total * outside).sum(axis=1) + prior)
    return start, end, np.maximum(usual, limits.floor)


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


def without(cluster: Cluster, **changes: object) -> Cluster:
    """Return a cluster with some fields replaced."""
    return replace(cluster, **changes)  # type: ignore[arg-type]

"""Scan of bad events over time and over all dimensions at once: which value of which dimension explains them best.

The scope with the largest likelihood ratio is the narrowest one that covers the events: a client whose requests all
fail beats its topic, a broker beats its topics. It is taken, its events are removed, and the scan is repeated on the
rest: one cause is found once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analytics.incidents.exposure import CONTRASTED, WHOLE, Exposure
from analytics.incidents.statistics import Array, best_intervals, gains, likelihood
from analytics.incidents.tables import SEPARATOR, joined


@dataclass(frozen=True, slots=True)
class Limits:
    """When a cluster counts. factor: of the rate for which the CUSUM is made; events, share, ratio, likelihood: least
    number of bad events, least excess as a share of the requests, least ratio to the usual, least likelihood ratio.
    floor: lowest usual share. sharpness: the final CUSUM's factor is the found ratio divided by this; low for changes
    that are there at once.
    """

    factor: float = 2.0
    events: float = 8.0
    share: float = 0.01
    ratio: float = 2.5
    likelihood: float = 16.0
    floor: float = 5e-4
    sharpness: float = 3.0
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
    # The first period that may tell how the span began: a tenth of the records before it, or its length.
    before: int
    # Bad events and requests of every period, without the events of other clusters.
    bad_series: Array
    total_series: Array


# Dimensions whose other values are the measure: all of them do the same work.
_COMPARED = frozenset({"replica", "broker", "sdk"})


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
        if name != WHOLE
    }
    codes[WHOLE] = np.zeros(len(rest), dtype=int)
    kept = np.ones(len(rest), dtype=bool)
    found: list[Cluster] = []

    def best_of(name: str, events: Array) -> Cluster | None:
        return _best(name, rest, codes[name], events, exposure, limits, found)

    while len(found) < limits.most:
        clusters = {name: cluster for name in exposure.values if (cluster := best_of(name, kept)) is not None}
        whole = clusters.get(WHOLE)
        if whole is not None and not _is_everywhere(whole, rest, codes, kept, exposure):
            del clusters[WHOLE]
        if not clusters:
            break
        weights = {name: _weight(name, cluster, favoured or {}) for name, cluster in clusters.items()}
        likeliest = max(weights, key=weights.__getitem__)

        def again(narrow: Cluster, name: str = likeliest, wide: Cluster = clusters[likeliest]) -> Cluster | None:
            others = kept.copy()
            others[narrow.events.index] = False
            with exposure.without(wide.scope, narrow.scope) as left_out:
                if left_out:
                    others &= ~_matches(rest, narrow.scope)
                return best_of(name, others)

        best = _widened(clusters[likeliest], clusters.get("topic"), limits)
        if likeliest in CONTRASTED:
            narrow = [each for name, each in clusters.items() if name not in {WHOLE, *CONTRASTED}]
            best = _part(best, narrow, again)
        kept[best.events.index] = False
        found.append(best)
    return found


def _levels(share: float, bad: Array, total: Array) -> Array:
    """Return the bad events of each value as a multiple of those that this share of its requests would be; NaN for
    values with too few requests to tell.
    """
    expected = share * total
    return np.where(expected >= _TELLING, bad / np.maximum(expected, 1e-9), np.nan)


def _is_everywhere(
    whole: Cluster, rest: pd.DataFrame, codes: Mapping[str, Array], kept: Array, exposure: Exposure
) -> bool:
    """Return whether all replicas and brokers are concerned, and most values of all other dimensions."""
    periods = rest["t"].to_numpy() - exposure.first
    during = kept & (periods >= whole.start) & (periods < whole.end)
    amount = rest["n"].to_numpy(float)
    for name in exposure.values.keys() & {*CONTRASTED, "topic"}:
        known = during & (codes[name] >= 0)
        if amount[known].sum() < _KNOWN * amount[during].sum():
            continue
        counts = exposure.counts[name]
        bad = np.bincount(codes[name][known], amount[known], len(counts))
        levels = _levels(whole.bad / max(whole.total, 1.0), bad, counts[:, whole.start : whole.end].sum(axis=1))
        concerned = levels[~np.isnan(levels)] > _FINE
        if concerned.size and concerned.mean() < (1.0 if name in {"replica", "broker"} else _MOST):
            return False
    return True


# Least number of expected events of a value that tells something; the highest share of them in a value that is fine;
# least share of values that are concerned if all are, and of events whose value is known.
_TELLING, _FINE, _MOST, _KNOWN = 4.0, 0.4, 0.8, 0.5


def _inside(name: str, values: pd.Index, scope: Mapping[str, str]) -> Array:
    """Return which values of a dimension are parts of a scope."""
    names = name.split("+")
    if not set(scope) <= set(names):
        return np.zeros(len(values), dtype=bool)
    places = [(names.index(each), value) for each, value in scope.items()]
    split = [str(value).split(SEPARATOR) for value in values]
    return np.array([all(parts[place] == value for place, value in places) for parts in split], dtype=bool)


def _matches(events: pd.DataFrame, scope: Mapping[str, str]) -> Array:
    """Return which events are of a scope."""
    return np.asarray(np.logical_and.reduce([events[name].to_numpy() == value for name, value in scope.items()]))


def _weight(name: str, cluster: Cluster, favoured: Mapping[str, frozenset[str]]) -> float:
    bonus = 1.02 if cluster.scope.get(name) in favoured.get(name, ()) else 1.0
    return cluster.likelihood * bonus * _PREFERENCE.get(name, 1.0)


def _part(wide: Cluster, narrow: Sequence[Cluster], again: Callable[[Cluster], Cluster | None]) -> Cluster:
    """Return the narrow cluster that is taken before a wide one, or the wide one.

    Several incidents of single topics at one replica are none of the replica: without the events of such a topic, the
    replica's own are at other times. again: the wide dimension's best cluster without the events of a narrow one.
    """
    for each in sorted(narrow, key=lambda each: -each.likelihood):
        if each.likelihood < _LEAST_PART * wide.likelihood or not len(
            each.events.index.intersection(wide.events.index)
        ):
            continue
        rest = again(each)
        if rest is None or rest.scope != wide.scope:
            if each.likelihood >= _MOST_PART * wide.likelihood:
                return each
            continue
        common = min(rest.end, wide.end) - max(rest.start, wide.start)
        shorter = rest.end - rest.start < wide.end - wide.start
        if shorter and common < _SAME_TIME * (max(rest.end, wide.end) - min(rest.start, wide.start)):
            return each
    return wide


# Least share of the wide scope's likelihood that a narrow one has, also if nothing is left of the wide one; least
# common time of the wide scope with and without the narrow one's events.
_LEAST_PART, _MOST_PART, _SAME_TIME = 0.2, 0.8, 0.6


def _widened(narrow: Cluster, topic: Cluster | None, limits: Limits) -> Cluster:
    """Return the topic's cluster in place of one broker's part of it, if the topic has it at other brokers too.

    A topic's requests include polls, which name no broker and rarely fail: the same events look likelier at a broker.
    """
    if topic is None or "broker" not in narrow.scope or narrow.scope.get("topic") != topic.scope["topic"]:
        return narrow
    periods = narrow.events["t"]
    others = topic.events.drop(narrow.events.index, errors="ignore")
    common = others[others["t"].between(periods.min(), periods.max())]
    return topic if common["n"].sum() >= max(limits.events, _ELSEWHERE * narrow.bad) else narrow


# Least events at other brokers, as a share of those at one broker, of an incident of the whole topic.
_ELSEWHERE = 0.25


# Of equally likely scopes, the one that an operator would name.
_PREFERENCE = {"broker": 1.01, "replica": 1.01, "topic": 1.008, "grp": 1.006, "topic+broker": 1.004, "client": 1.002}


def _best(
    name: str,
    rest: pd.DataFrame,
    codes: Array,
    kept: Array,
    exposure: Exposure,
    limits: Limits,
    former: Sequence[Cluster],
) -> Cluster | None:
    """Return the likeliest cluster of a dimension; None without one. former: clusters whose events are not kept."""
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
    new = (total[:, :_NEW].sum(axis=1) == 0) & (name == "sdk")
    compared = np.full(rows.size, name in _COMPARED)
    start, end, usual = _spans(bad, total, np.maximum(common, limits.floor), limits, new | compared)
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
    if name in _COMPARED:
        fine &= _exceeds_others(rows, fine, start, end, exposure, name, codes, rest, known)
    if not fine.any():
        return None
    row = int(np.argmax(np.where(fine, scores, -1.0)))
    periods = rest["t"].to_numpy() - exposure.first
    # One period around belongs to the cluster.
    member = known & (codes == rows[row]) & (periods >= start[row] - 1) & (periods < end[row] + 1)
    before = max(int(start[row]) - max(exposure.periods // 10, 12, int(end[row] - start[row])), 0)
    return Cluster(
        _scope_of(name, str(exposure.values[name][rows[row]])),
        int(start[row]),
        int(end[row]),
        float(seen[row]),
        float(requests[row]),
        float(expected[row]),
        float(scores[row]),
        rest[member],
        before,
        bad[row],
        total[row],
    )


def _scope_of(name: str, value: str) -> dict[str, str]:
    return {} if name == WHOLE else dict(zip(name.split("+"), value.split(SEPARATOR), strict=True))


def _exceeds_others(
    rows: Array,
    asked: Array,
    start: Array,
    end: Array,
    exposure: Exposure,
    name: str,
    codes: Array,
    rest: pd.DataFrame,
    known: Array,
) -> Array:
    """Return which of the rows asked for exceed another value in their own span: trouble of all is none of each."""
    counts, amount = exposure.counts[name], rest["n"].to_numpy(float)
    periods = rest["t"].to_numpy() - exposure.first
    result = np.zeros(rows.size, dtype=bool)
    for place in np.flatnonzero(asked):
        during = known & (periods >= start[place]) & (periods < end[place])
        bad = np.bincount(codes[during], amount[during], len(counts))
        total = counts[:, start[place] : end[place]].sum(axis=1)
        row = rows[place]
        others = np.delete(_levels(bad[row] / max(total[row], 1.0), bad, total), row)
        others = others[~np.isnan(others)]
        result[place] = not others.size or others.min() <= _FINE
    return result


# Periods at the beginning of the records in which a new version has no requests: an hour.
_NEW = 12


def _spans(bad: Array, total: Array, common: float | Array, limits: Limits, new: Array) -> tuple[Array, Array, Array]:
    """Return start and end of each row's worst span, and the usual share outside of it. new: rows whose own share says
    nothing about the usual one.
    """
    mean = (bad.sum(axis=1) + _PRIOR * common) / (total.sum(axis=1) + _PRIOR)
    start, end, usual = _converged(bad, total, common, np.where(new, common, mean), limits)
    # A change that lasts for most of the records makes up most of the mean.
    quiet = _quiet_share(bad, total, common)
    rows = np.flatnonzero(~new & (mean > _LONG_CHANGE * quiet))
    if rows.size:
        part = common[rows] if isinstance(common, np.ndarray) else common
        found = _converged(bad[rows], total[rows], part, quiet[rows], limits)
        better = _evidence(bad[rows], total[rows], *found[:2]) > _evidence(
            bad[rows], total[rows], start[rows], end[rows]
        )
        for each, other in zip((start, end, usual), found, strict=True):
            each[rows[better]] = other[better]
    start, end = _sharpened(bad, total, np.maximum(usual, limits.floor), start, end)
    for row in range(len(bad)):
        start[row], end[row] = _trimmed(bad[row], int(start[row]), int(end[row]))
    return start, end, np.maximum(usual, limits.floor)


# Requests that the share of all others counts for.
_PRIOR = 200.0
# Least ratio of the mean to the quiet share of a row with a change that may last for most of the records; the share of
# the requests, in the quietest blocks, of which the quiet share is made; least bad events of a block, and blocks.
_LONG_CHANGE, _QUIET, _BLOCK_EVENTS, _BLOCKS = 2.0, 0.15, 10.0, 6
# Least share of a row's requests that lie outside of such a change.
_OUTSIDE = 0.1


def _quiet_share(bad: Array, total: Array, common: float | Array) -> Array:
    """Return the share of bad events in the quietest blocks of each row; infinity for rows with too few events."""
    shares = np.full(len(bad), np.inf)
    usual = np.broadcast_to(np.asarray(common, float), len(bad))
    for row in range(len(bad)):
        count = int(min(bad[row].sum() / _BLOCK_EVENTS, bad.shape[1] / _NEW))
        if count < _BLOCKS:
            continue
        # Blocks of as many requests, not of as much time: at night there are few requests.
        places = np.minimum((total[row].cumsum() - total[row]) * count // max(total[row].sum(), 1e-9), count - 1)
        events, requests = (np.bincount(places.astype(int), each[row], count) for each in (bad, total))
        order = np.argsort(events / np.maximum(requests, 1e-9))
        quiet = order[: max(int(np.ceil(_QUIET * count)), 1)]
        shares[row] = (events[quiet].sum() + _PRIOR * usual[row]) / (requests[quiet].sum() + _PRIOR)
    return shares


def _evidence(bad: Array, total: Array, start: Array, end: Array) -> Array:
    """Return how well two shares, inside and outside of the spans, explain the rows; -infinity without an outside."""
    span = np.arange(bad.shape[1])
    inside = (span >= start[:, None]) & (span < end[:, None])
    result = np.zeros(len(bad))
    for part in (inside, ~inside):
        events, requests = (bad * part).sum(axis=1), (total * part).sum(axis=1)
        result += events * np.log(np.maximum(events, 1e-9) / np.maximum(requests, 1e-9))
    outside = (total * ~inside).sum(axis=1)
    return np.where(outside >= _OUTSIDE * total.sum(axis=1), result, -np.inf)


def _converged(
    bad: Array, total: Array, common: float | Array, usual: Array, limits: Limits
) -> tuple[Array, Array, Array]:
    """Return start and end of each row's worst span, and the usual share outside of it, from a first usual share on."""
    start, end = np.zeros(len(bad), int), np.zeros(len(bad), int)
    span = np.arange(bad.shape[1])
    factor = np.full((len(bad), 1), limits.factor)
    for _ in range(4):
        usual = np.maximum(usual, limits.floor)
        start, end, _ = best_intervals(gains(bad, total * usual[:, None], factor))
        inside = (span >= start[:, None]) & (span < end[:, None])
        # The change that was found is sharper than the least one: then stray events before it do not belong to it.
        ratio = (bad * inside).sum(axis=1) / np.maximum((total * inside).sum(axis=1) * usual, 1e-9)
        factor = np.clip(ratio / limits.sharpness, limits.factor, 100.0)[:, None]
        outside = (span < start[:, None]) | (span >= end[:, None])
        usual = ((bad * outside).sum(axis=1) + _PRIOR * common) / ((total * outside).sum(axis=1) + _PRIOR)
    return start, end, usual


def _sharpened(bad: Array, total: Array, usual: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Return the spans, or the denser ones inside of them that are likelier: two incidents of a day are not one."""
    span = np.arange(bad.shape[1])

    def evaluated(first: Array, last: Array) -> tuple[Array, Array]:
        inside = (span >= first[:, None]) & (span < last[:, None])
        seen = (bad * inside).sum(axis=1)
        ratio = np.maximum(seen, 1e-9) / np.maximum((total * inside).sum(axis=1) * usual, 1e-9)
        return ratio, seen * (np.log(ratio) - 1 + 1 / ratio)

    ratio, likelihoods = evaluated(start, end)
    factor = np.clip(ratio, 1.01, 1000.0)[:, None]
    denser_start, denser_end, _ = best_intervals(gains(bad, total * usual[:, None], factor))
    _, denser = evaluated(denser_start, denser_end)
    better = denser > _DENSER * likelihoods
    return np.where(better, denser_start, start), np.where(better, denser_end, end)


# How much likelier a denser span must be; the start of a growth is not cut off by it.
_DENSER = 1.05
# Share of the events, and of the time, of an edge that does not belong to a span.
_EDGE, _EDGE_TIME = 0.05, 0.15
# Of fewer events none is stray.
_EDGE_EVENTS = 40


def _trimmed(bad: Array, start: int, end: int) -> tuple[int, int]:
    """Return a span without edges of few events before or after a long pause: at night few requests tell little, so
    that a stray event hours before would belong to it.
    """
    while end - start >= 8 and bad[start:end].sum() >= _EDGE_EVENTS:
        places = start + np.flatnonzero(bad[start:end])
        pauses = np.diff(places)
        if not pauses.size:
            return start, end
        sums = np.cumsum(bad[places])[:-1] / bad[start:end].sum()
        long = pauses >= max(_EDGE_TIME * (end - start), 6)
        first, last = np.flatnonzero(long & (sums <= _EDGE)), np.flatnonzero(long & (sums >= 1 - _EDGE))
        if first.size:
            start = int(places[first[-1] + 1])
        elif last.size:
            end = int(places[last[0]]) + 1
        else:
            return start, end
    return start, end


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

"""Address ranges, replicas, brokers, or the whole service, from which all requests stay away at once.

Heartbeats and polls count too, so a night or a topic without messages is none of these.
"""

from collections.abc import Iterable

import numpy as np

from analytics.incidents.baseline import usual_range
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.seasonal import season
from analytics.incidents.statistics import Array, Interval, gains, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables

# Kinds by the dimension; the whole service has none.
_KINDS = {
    "": Kind.SERVICE_SILENCE,
    "network": Kind.NETWORK_SILENCE,
    "replica": Kind.REPLICA_SILENCE,
    "broker": Kind.BROKER_SILENCE,
}
# Factor of the CUSUM; highest share of the usual rows; least number of missing ones, and likelihood.
_LESS, _SHARE, _MISSING, _SURE = 0.1, 0.05, 30.0, 25.0
# Share of the season's lowest count that is usual; share of hours below the lowest one, for records of a day.
_LOW, _LOWEST = 0.8, 0.1
# Share of their usual requests below which the others are silent too.
_OTHERS = 0.3
# Seconds before a silence in which drained connections are its cause, and after its beginning in which another range
# begins that is its successor; those before it in which clients move to a successor, one after the other; and the least
# share of the requests that a successor has.
_PLANNED, _MOVING, _SUCCESSOR = 900.0, 7200.0, 0.3
_HOUR = 3600 // STEP


def silences(tables: Tables) -> list[Finding]:
    """Return findings service_silence, network_silence, replica_silence and broker_silence."""
    _, counts, weights = _matrix(tables, "replica")
    whole = counts.sum(axis=0)[None, :]
    mean = (weights @ counts.sum(axis=1)) / max(counts.sum(), 1.0)
    found = _silent(tables, "", [""], whole, np.array([mean]))
    for name in ("network", "replica", "broker"):
        names, counts, weights = _matrix(tables, name)
        if len(names) > 1:
            found += [each for each in _silent(tables, name, names, counts, weights) if not _is_part(each, found)]
    return found


def _matrix(tables: Tables, name: str) -> tuple[list[str], Array, Array]:
    """Return the subjects, their rows by period, and how many requests a row stands for: under sampling, the few rows
    of many requests are late or early by chance.
    """
    rows = tables.totals[tables.totals["dimension"] == name]
    names, codes = np.unique(rows["value"].to_numpy(dtype=str), return_inverse=True)
    flat = codes * tables.periods + (rows["t"].to_numpy() - tables.first)
    counts = np.bincount(flat, rows["rows_"], len(names) * tables.periods)
    weights = np.bincount(codes, rows["n"]) / np.maximum(np.bincount(codes, rows["rows_"]), 1.0)
    return [str(each) for each in names], counts.reshape(len(names), tables.periods), weights


def _is_part(silence: Finding, found: list[Finding]) -> bool:
    """Return whether the whole service was silent for half of the time."""
    services = [each for each in found if not each.about]
    common = sum(max(min(each.end, silence.end) - max(each.start, silence.start), 0.0) for each in services)
    return common >= 0.5 * (silence.end - silence.start)


def _silent(tables: Tables, name: str, names: list[str], counts: Array, weights: Array) -> list[Finding]:
    lows = _lowest(tables, counts)
    first = (counts > 0).argmax(axis=1)
    found = []
    for place, value in enumerate(names):
        series, low = counts[place], lows[place].copy()
        # Before its first request the subject did not exist.
        low[: first[place]] = 0.0
        spans = intervals(gains(series, low, _LESS), _SURE * 0.6)
        for start, end in _joined(run for span in spans for run in _runs(series, low, span)):
            seen, usual = (float(each[start:end].sum()) for each in (series, low))
            while start > 0 and series[start - 1] == 0:
                start -= 1
            if _is_usual(series, start, end):
                continue
            others = np.delete(counts, place, axis=0)[:, start:end].sum()
            usual_others = np.delete(lows, place, axis=0)[:, start:end].sum()
            begin = (tables.first + start) * STEP
            addresses = _addresses(tables, name, value)
            single = addresses == 1 and _lost(tables, value, begin) < _CLIENTS
            if name and (others < _OTHERS * usual_others or single or _is_planned(tables, name, value, begin)):
                continue
            if name == "network" and _has_successor(counts, first, place, start):
                continue
            still = end >= tables.periods - 1 or not series[end:].any()
            until = (tables.last + 1 if still else tables.first + end) * STEP
            about = {name: value} if name else {}
            score = likelihood(seen, usual)
            seen, usual = seen * weights[place], usual * weights[place]
            found.append(Finding(_KINDS[name], begin, until, about, seen, usual, score, usual - seen, addresses, still))
    return found


def _is_usual(series: Array, start: int, end: int) -> bool:
    """Return whether a subject sends as much as in the hours before, or sends at the beginning of the records: a host
    may have more to do on later days.
    """
    before = series[max(start - _BEFORE, 0) : start]
    seen = float(series[start:end].sum())
    return bool(seen) and (not start or seen / (end - start) >= _STEADY * float(before.mean()))


# Periods before a silence, and the least share of their requests that goes on in what is none.
_BEFORE, _STEADY = 3 * _HOUR, 0.5


def _runs(series: Array, low: Array, span: Interval) -> list[tuple[int, int]]:
    """Return the part of a span without requests, if it is plain: after a crash, only clients that connect anew come
    back, so few that later periods are empty by chance.
    """
    quiet = series[span.start : span.end] <= _SHARE * low[span.start : span.end]
    edges = np.flatnonzero(np.diff(quiet.astype(int), prepend=0, append=0)) + span.start
    runs: list[tuple[int, int]] = []
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        # Stray requests do not end a silence.
        if runs and series[runs[-1][0] : end].sum() <= _SHARE * low[runs[-1][0] : end].sum():
            start = runs.pop()[0]
        runs.append((start, end))
    plain = [run for run in runs if _is_plain(series, low, *run)]
    longest = max(plain, key=lambda run: float((low - series)[slice(*run)].sum()), default=(0, 0))
    return [run for run in _joined(plain) if run[0] <= longest[0] < run[1]]


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return runs without pauses of less than an hour: a subject that is silent again soon had not recovered."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if joined and start - joined[-1][1] < _HOUR:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def _is_plain(series: Array, low: Array, start: int, end: int) -> bool:
    seen, usual = (float(each[start:end].sum()) for each in (series, low))
    return usual - seen >= _MISSING and likelihood(seen, usual) >= _SURE


def _lowest(tables: Tables, counts: Array) -> Array:
    """Return the lowest usual count of every row and period."""
    made = season(counts, tables.first, STEP)
    if made is None:
        hours = smoothed(counts, _HOUR)
        lows = [np.quantile(row[row > 0], _LOWEST) if (row > 0).any() else 0.0 for row in hours]
        return np.repeat(np.array(lows)[:, None], counts.shape[1], axis=1)
    usual = usual_range(counts, tables.first, STEP)
    return np.nan_to_num(np.fmin(usual.low, _LOW * made.low))


def _addresses(tables: Tables, name: str, value: str) -> int:
    """Return the number of a range's addresses with connections; 0 if there are no records of them."""
    if name != "network" or tables.connections.empty:
        return 0
    return int(tables.connections.loc[tables.connections["network"] == value, "address"].nunique())


def _lost(tables: Tables, network: str, begin: float) -> int:
    """Return the number of a range's clients whose connections end when it becomes silent: behind the one address of a
    gateway there are many.
    """
    ends = tables.connections[tables.connections["event"] == "close"]
    rows = ends[(ends["network"] == network) & ends["t"].mul(STEP).between(begin - _PLANNED, begin + _PLANNED)]
    return int(rows["client"].nunique())


# Clients of one address that are no range of one client.
_CLIENTS = 5


def _is_planned(tables: Tables, name: str, value: str, begin: float) -> bool:
    """Return whether a replica was drained before it became silent."""
    if name != "replica" or tables.connections.empty:
        return False
    rows = tables.connections[(tables.connections["replica"] == value) & (tables.connections["cause"] == "drain")]
    return bool(rows["t"].mul(STEP).between(begin - _PLANNED, begin + STEP).any())


def _has_successor(counts: Array, first: Array, place: int, start: int) -> bool:
    """Return whether ranges without requests before take over: clients that moved are not silent."""
    new = np.flatnonzero(
        (first >= start - _MOVING // STEP) & (first <= start + _PLANNED // STEP) & (np.arange(len(counts)) != place)
    )
    # Until the first of them moves, the old range has all requests.
    moved = min(int(first[new].min()), start) if new.size else start
    before = counts[place, max(moved - _HOUR, 0) : max(moved, 1)].mean()
    after = counts[new, start : start + _HOUR].sum(axis=0)
    return bool(after.size and after.mean() >= _SUCCESSOR * before)

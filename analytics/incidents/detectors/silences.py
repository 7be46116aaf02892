"""Address ranges, replicas, brokers, or the whole service, from which all requests stay away at once.

Heartbeats and polls count too, so a night or a topic without messages is none of these.
"""

import numpy as np

from analytics.incidents.baseline import usual_range
from analytics.incidents.finding import Finding
from analytics.incidents.seasonal import season
from analytics.incidents.statistics import Array, Interval, gains, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables

KINDS = {
    "": "service_silence",
    "network": "network_silence",
    "replica": "replica_silence",
    "broker": "broker_silence",
}
# Factor of the CUSUM; highest share of the usual requests; least number of missing ones, and likelihood.
_LESS, _SHARE, _MISSING, _SURE = 0.1, 0.05, 30.0, 25.0
# Share of the season's lowest count that is usual; share of hours below the lowest one, for records of a day.
_LOW, _LOWEST = 0.8, 0.1
# Share of their usual requests below which the others are silent too.
_OTHERS = 0.3
# Seconds before a silence in which drained connections are its cause, or around it in which another range is its
# successor; and the least share of the requests that a successor has.
_PLANNED, _SUCCESSOR = 900.0, 0.3
_HOUR = 3600 // STEP


def silences(tables: Tables) -> list[Finding]:
    """Return findings service_silence, network_silence, replica_silence and broker_silence."""
    whole = _matrix(tables, "replica")[1].sum(axis=0)[None, :]
    found = _silent(tables, "", [""], whole)
    for name in ("network", "replica", "broker"):
        names, counts = _matrix(tables, name)
        if len(names) > 1:
            found += [each for each in _silent(tables, name, names, counts) if not _is_part(each, found)]
    return found


def _matrix(tables: Tables, name: str) -> tuple[list[str], Array]:
    rows = tables.totals[tables.totals["dimension"] == name]
    names, codes = np.unique(rows["value"].to_numpy(dtype=str), return_inverse=True)
    flat = codes * tables.periods + (rows["t"].to_numpy() - tables.first)
    counts = np.bincount(flat, rows["n"], len(names) * tables.periods)
    return [str(each) for each in names], counts.reshape(len(names), tables.periods)


def _is_part(silence: Finding, found: list[Finding]) -> bool:
    """Return whether the whole service was silent for half of the time."""
    services = [each for each in found if not each.about]
    common = sum(max(min(each.end, silence.end) - max(each.start, silence.start), 0.0) for each in services)
    return common >= 0.5 * (silence.end - silence.start)


def _silent(tables: Tables, name: str, names: list[str], counts: Array) -> list[Finding]:
    lows = _lowest(tables, counts)
    first = (counts > 0).argmax(axis=1)
    found = []
    for place, value in enumerate(names):
        series, low = counts[place], lows[place].copy()
        # Before its first request it did not exist.
        low[: first[place]] = 0.0
        for span in intervals(gains(series, low, _LESS), _SURE * 0.6):
            start, end = _quiet(series, low, span)
            seen, usual = (float(each[start:end].sum()) for each in (series, low))
            score = likelihood(seen, usual)
            if seen > _SHARE * usual or usual - seen < _MISSING or score < _SURE:
                continue
            while start > 0 and series[start - 1] == 0:
                start -= 1
            others = np.delete(counts, place, axis=0)[:, start:end].sum()
            usual_others = np.delete(lows, place, axis=0)[:, start:end].sum()
            begin = (tables.first + start) * STEP
            addresses = _addresses(tables, name, value)
            if name and (others < _OTHERS * usual_others or addresses == 1 or _is_planned(tables, name, value, begin)):
                continue
            if name == "network" and _has_successor(counts, first, place, start):
                continue
            still = end >= tables.periods - 1 or not series[end:].any()
            until = (tables.last + 1 if still else tables.first + end) * STEP
            about = {name: value} if name else {}
            kind = KINDS[name]
            found.append(Finding(kind, begin, until, about, seen, usual, score, usual - seen, addresses, still))
    return found


def _quiet(series: Array, low: Array, span: Interval) -> tuple[int, int]:
    """Return a span without periods at its edges in which some requests came: it begins and ends inside of these."""
    start, end = span.start, span.end
    while end - start > 1 and series[end - 1] > _SHARE * low[end - 1]:
        end -= 1
    while end - start > 1 and series[start] > _SHARE * low[start]:
        start += 1
    return start, end


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


def _is_planned(tables: Tables, name: str, value: str, begin: float) -> bool:
    """Return whether a replica was drained before it became silent."""
    if name != "replica" or tables.connections.empty:
        return False
    rows = tables.connections[(tables.connections["replica"] == value) & (tables.connections["cause"] == "drain")]
    return bool(rows["t"].mul(STEP).between(begin - _PLANNED, begin + STEP).any())


def _has_successor(counts: Array, first: Array, place: int, start: int) -> bool:
    """Return whether ranges without requests before take over: clients that moved are not silent."""
    near = _PLANNED // STEP
    new = np.flatnonzero((first >= start - near) & (first <= start + near) & (np.arange(len(counts)) != place))
    before = counts[place, max(start - _HOUR, 0) : start].mean()
    after = counts[new, start : start + _HOUR].sum(axis=0)
    return bool(after.size and after.mean() >= _SUCCESSOR * before)

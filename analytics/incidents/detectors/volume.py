"""Topics and tenants that send much more, much less or nothing, in comparison with the other days."""

import numpy as np
import pandas as pd

from analytics.incidents.baseline import Usual, usual_range
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array, gains, hinge, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables
from analytics.transforms.operations import SEND

# More: factor of the CUSUM, least ratio to the highest usual count, least number of messages more.
_MORE, _TIMES, _LEAST_MORE = 2.0, 2.0, 60.0
# Less: factor of the CUSUM, highest ratio to the lowest usual count, least number of messages missing.
_LESS, _SHARE, _LEAST_LESS, _SURE = 0.2, 0.3, 22.0, 18.0
# Growth: factor of the CUSUM and least ratio to the typical count of such days.
_GROWN, _GROWN_TIMES = 1.7, 1.8
# And the least ratio to the highest count of other days.
_ABOVE = 1.4
_LIKELIHOOD = 30.0
# A growth takes so many hours at least.
_GROWTH_HOURS = 6
_HOUR = 3600 // STEP


def volume(tables: Tables) -> list[Finding]:
    """Return findings traffic_surge, traffic_growth, traffic_drop and silence, by topic and by tenant."""
    sends = tables.flows[tables.flows["op"] == SEND]
    if sends.empty:
        return []
    return _judged(tables, "topic", *_matrix(tables, sends, "topic"))


def _matrix(tables: Tables, sends: pd.DataFrame, column: str) -> tuple[list[str], Array, Array]:
    """Return the subjects, their requests by period, and how many rows a request has (below 1 under sampling)."""
    codes, names = pd.factorize(sends[column])
    flat = codes * tables.periods + (sends["t"].to_numpy() - tables.first)
    size = len(names) * tables.periods
    counts = np.bincount(flat, sends["n"], size).reshape(len(names), tables.periods)
    rows = np.bincount(codes, sends["rows_"]) / np.maximum(np.bincount(codes, sends["n"]), 1e-9)
    return [str(name) for name in names], counts, np.minimum(rows, 1.0)


def _judged(tables: Tables, attribute: str, names: list[str], counts: Array, rows: Array) -> list[Finding]:
    usual = usual_range(counts, tables.first, STEP)
    if np.isnan(usual.high).all():
        usual = _from_others(counts)
    found = []
    for place, name in enumerate(names):
        series, sampled = counts[place], float(rows[place])
        typical, high = usual.typical[place], usual.high[place]
        surges = _surges(tables, {attribute: name}, series, typical, high, sampled)
        found += [*surges, *_growths(tables, {attribute: name}, series, typical, high, sampled, surges)]
        found += _drops(tables, {attribute: name}, series, usual.low[place], sampled)
    return found


def _from_others(counts: Array) -> Usual:
    """Return a range for records of one day: the share that each subject usually has of what the others send."""
    total = counts.sum(axis=0)
    others = smoothed(total[None, :] - counts, 6)
    ratios = smoothed(counts, 6) / np.maximum(others, 1e-9)
    expected = np.median(ratios, axis=1)[:, None] * others
    return Usual(expected * 0.5, expected, expected * 2.0)


def _surges(
    tables: Tables, about: dict[str, str], counts: Array, typical: Array, high: Array, sampled: float
) -> list[Finding]:
    expected = np.where(np.isfinite(high), high + 0.5, counts + 1.0)
    found = []
    for span in intervals(gains(counts * sampled, expected * sampled, _MORE), _LIKELIHOOD):
        seen, usual = counts[span.start : span.end].sum(), expected[span.start : span.end].sum()
        short = span.end - span.start < _GROWTH_HOURS * _HOUR
        if short and seen >= _TIMES * usual and seen - usual >= _LEAST_MORE:
            score = likelihood(seen * sampled, usual * sampled)
            # Near a nightly batch the usual range is wide: the surge began when it exceeded what is typical.
            start = span.start
            while start > 0 and counts[start - 1] > 3.0 * typical[start - 1] + 2.0:
                start -= 1
            found.append(_finding(tables, "traffic_surge", about, start, span.end, seen, usual, score, seen - usual))
    return found


def _growths(
    tables: Tables,
    about: dict[str, str],
    counts: Array,
    typical: Array,
    high: Array,
    sampled: float,
    surges: list[Finding],
) -> list[Finding]:
    """Return long surges: growth, if a line explains them better than a step."""
    # Without the surges: a short one makes no growth.
    rest, usual = counts.copy(), np.where(np.isfinite(typical), typical, counts)
    for surge in surges:
        first, last = (int(time // STEP) - tables.first for time in (surge.start, surge.end))
        rest[first:last] = usual[first:last]
    hours = np.arange(counts.size) // _HOUR
    seen, expected = np.bincount(hours, rest), np.bincount(hours, usual) + 1.0
    highest = np.bincount(hours, np.where(np.isfinite(high), high, counts))
    found = []
    for span in intervals(gains(seen * sampled, expected * sampled, _GROWN), _LIKELIHOOD):
        more, less = seen[span.start : span.end].sum(), expected[span.start : span.end].sum()
        if span.end - span.start < _GROWTH_HOURS or more < _GROWN_TIMES * less or more - less < _LEAST_MORE:
            continue
        if more < _ABOVE * highest[span.start : span.end].sum():
            continue
        begin = max(span.start - 12, 0)
        values = np.log((seen[begin : span.end] + 1) / expected[begin : span.end])
        bend, line, step = hinge(values, seen[begin : span.end] + 1)
        if line < step:
            start, end = min(begin + bend, span.start) * _HOUR, min(span.end * _HOUR, tables.periods)
            score = likelihood(more * sampled, less * sampled)
            found.append(_finding(tables, "traffic_growth", about, start, end, more, less, score, more - less))
        elif more >= 3.0 * less:
            start, end = span.start * _HOUR, min(span.end * _HOUR, tables.periods)
            score = likelihood(more * sampled, less * sampled)
            found.append(_finding(tables, "traffic_surge", about, start, end, more, less, score, more - less))
    return found


def _drops(tables: Tables, about: dict[str, str], counts: Array, low: Array, sampled: float) -> list[Finding]:
    expected = np.nan_to_num(low, nan=0.0)
    found = []
    for span in intervals(gains(counts * sampled, expected * sampled, _LESS), _LEAST_LESS * 0.5):
        seen, usual = counts[span.start : span.end].sum(), expected[span.start : span.end].sum()
        if seen <= _SHARE * usual and (usual - seen) * sampled >= _LEAST_LESS:
            # Periods without traffic may precede the first missing message.
            start = span.start
            while start > 0 and counts[start - 1] == 0:
                start -= 1
            still = span.end >= tables.periods - 1 or not counts[span.end :].any()
            end = tables.periods if still else span.end
            kind = "silence" if still else "traffic_drop"
            score = likelihood(seen * sampled, usual * sampled)
            if score >= _SURE:
                found.append(_finding(tables, kind, about, start, end, seen, usual, score, usual - seen))
    return found


def _finding(
    tables: Tables,
    kind: str,
    about: dict[str, str],
    start: int,
    end: int,
    seen: float,
    usual: float,
    score: float,
    affected: float,
) -> Finding:
    still = end >= tables.periods - 1
    begin, until = ((tables.first + place) * STEP for place in (start, end))
    return Finding(kind, begin, until, about, seen, usual, score, affected, 0, still)

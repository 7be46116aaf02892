"""Topics and tenants that send much more, much less or nothing, in comparison with the other days."""

import numpy as np
import pandas as pd

from analytics.incidents.baseline import usual_range
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array, Interval, gains, hinge, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables
from analytics.transforms.operations import SEND

# More: factor of the CUSUM, least ratio to the highest usual count, least number of messages more.
_MORE, _TIMES, _LEAST_MORE = 2.0, 2.0, 60.0
# Less: factor of the CUSUM, highest ratio to the lowest usual count, least number of messages missing.
_LESS, _SHARE, _LEAST_LESS = 0.2, 0.3, 20.0
_LIKELIHOOD = 30.0
# A growth takes so many hours at least.
_GROWTH_HOURS = 4
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
    low, high = usual_range(counts, tables.first, STEP)
    if np.isnan(high).all():
        low, high = _from_others(counts)
    found = []
    for place, name in enumerate(names):
        series, sampled = counts[place], float(rows[place])
        found += _surges(tables, {attribute: name}, series, high[place], sampled)
        found += _drops(tables, {attribute: name}, series, low[place], sampled)
    return found


def _from_others(counts: Array) -> tuple[Array, Array]:
    """Return a range for records of one day: the share that each subject usually has of what the others send."""
    total = counts.sum(axis=0)
    others = smoothed(total[None, :] - counts, 6)
    ratios = smoothed(counts, 6) / np.maximum(others, 1e-9)
    expected = np.median(ratios, axis=1)[:, None] * others
    return expected * 0.5, expected * 2.0


def _surges(tables: Tables, about: dict[str, str], counts: Array, high: Array, sampled: float) -> list[Finding]:
    expected = np.nan_to_num(high, nan=np.inf) + 0.5
    expected = np.where(np.isfinite(expected), expected, counts + 1.0)
    found = []
    for span in intervals(gains(counts * sampled, expected * sampled, _MORE), _LIKELIHOOD):
        seen, usual = counts[span.start : span.end].sum(), expected[span.start : span.end].sum()
        if seen >= _TIMES * usual and seen - usual >= _LEAST_MORE:
            kind, start = _growth(counts, expected, span)
            score = likelihood(seen * sampled, usual * sampled)
            found.append(_finding(tables, kind, about, start, span.end, seen, usual, score, seen - usual))
    return found


def _growth(counts: Array, expected: Array, span: Interval) -> tuple[str, int]:
    """Return the kind of a surge and its first period: a growth begins before it exceeds the highest usual count."""
    if span.end - span.start < _GROWTH_HOURS * _HOUR:
        return "traffic_surge", span.start
    begin = max(span.start - 24 * _HOUR, 0)
    hours = np.arange(begin, span.end) // _HOUR
    hours -= hours[0]
    seen, usual = (np.bincount(hours, series[begin : span.end]) for series in (counts, expected))
    values = np.log((seen + 1) / (usual + 1))
    bend, line, step = hinge(values, np.sqrt(seen + 1))
    if line < step:
        return "traffic_growth", min(begin + bend * _HOUR, span.start)
    return "traffic_surge", span.start


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

"""Topics and tenants that send much more, much less or nothing, in comparison with the other days."""

import numpy as np
import pandas as pd

from analytics.incidents.baseline import Usual, most_of_other_days, other_days, usual_range
from analytics.incidents.batches import without_batches
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import KINDS, Kind
from analytics.incidents.names import tenant
from analytics.incidents.onsets import volume_bend
from analytics.incidents.retirement import is_retired
from analytics.incidents.seasonal import POINT, Season, season, weekend_offset
from analytics.incidents.statistics import Array, Interval, dispersion, gains, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables
from analytics.incidents.weekends import closed_weekend, is_day_off
from analytics.transforms.operations import SEND
from remoting.names import DLQ_PREFIX, RETRY_PREFIX

# More: factor of the CUSUM, least ratio to the highest usual count, least number of messages more.
_MORE, _TIMES, _LEAST_MORE = 2.0, 2.0, 60.0
# Less: factor of the CUSUM, highest ratio to the lowest usual count, least number of messages missing.
_LESS, _SHARE, _LEAST_LESS, _SURE = 0.2, 0.3, 22.0, 18.0
# Highest share of the lowest usual count that is nothing.
_NOTHING = 0.01
# Growth: factor of the CUSUM and least ratio to the typical count of such days.
_GROWN, _GROWN_TIMES = 1.7, 1.8
# And the least ratio to the highest count of other days.
_ABOVE = 1.4
# A long drop: factor of the CUSUM, highest ratio to the typical count of such days and to the lowest one.
_SHRUNK, _HALF, _BELOW = 0.55, 0.5, 0.75
_LIKELIHOOD = 30.0
# A growth takes so many hours at least; points of its series.
_GROWTH_HOURS = 6
_HOUR = 3600 // STEP
_TWO_DAYS = 2 * 24 * _HOUR
_POINT = POINT // STEP
_GROWTH_POINTS = _GROWTH_HOURS * _HOUR // _POINT
# A long drop takes two hours at least.
_SHRUNK_POINTS = 2 * _HOUR // _POINT
# Points before a growth is plain in which it may have begun: sixteen hours.
_REACH = 16 * _HOUR // _POINT
# Points before a growth is plain that are left out of the season.
_BEFORE = 4 * _HOUR // _POINT
# Least share of a long surge's messages that a short one inside of it has to replace it.
_MOSTLY = 0.6
# Least ratio of a surge to the season.
_BEYOND = 1.5
# Seconds of a drop below the season.
_LONG = 4800.0
# Share of the season's lowest count that is usual.
_LOW = 0.8


def volume(tables: Tables) -> list[Finding]:
    """Return findings traffic_surge, traffic_growth, traffic_drop and silence, by topic and by tenant."""
    sends = tables.flows[tables.flows["op"] == SEND]
    # Messages that fail are sent to these by the service: retries.py finds them.
    sends = sends[~sends["topic"].str.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    if sends.empty:
        return []
    topics = _judged(tables, "topic", *_matrix(tables, sends, "topic"))
    topics = [
        each for each in topics if each.kind != Kind.SILENCE or not is_retired(tables, each.about["topic"], each.start)
    ]
    sends = sends.assign(tenant=sends["topic"].map({topic: tenant(topic) for topic in sends["topic"].unique()}))
    if sends["tenant"].nunique() == 1:
        return topics
    tenants = _judged(tables, "tenant", *_matrix(tables, sends, "tenant"))
    return _by_cause(topics, [each for each in tenants if KINDS[each.kind].gain])


def _by_cause(topics: list[Finding], tenants: list[Finding]) -> list[Finding]:
    """Return the findings of topics, and those of tenants whose topics gain together, in place of their topics'."""
    found = []
    for whole in tenants:
        own = [each for each in topics if _is_topic_of(each, whole)]
        if len(own) < _TOGETHER and any(each.affected >= _MOST_OF_TENANT * whole.affected for each in own):
            continue
        found.append(whole)
        topics = [each for each in topics if each not in own]
    return [*topics, *found]


def _is_topic_of(topic: Finding, whole: Finding) -> bool:
    """Return whether a finding is about a topic of a tenant that gains at the same time."""
    common = min(topic.end, whole.end) - max(topic.start, whole.start)
    same = tenant(topic.about["topic"]) == whole.about["tenant"]
    return KINDS[topic.kind].gain and same and common >= 0.5 * min(topic.end - topic.start, whole.end - whole.start)


# Share of a tenant's surplus beyond which one topic is the cause, and the number of topics that gain together, of any
# shares: one of a tenant's topics often has most of its messages.
_MOST_OF_TENANT, _TOGETHER = 0.7, 3


def _matrix(tables: Tables, sends: pd.DataFrame, column: str) -> tuple[list[str], Array, Array]:
    """Return the subjects, their requests by period, and how many rows a request has (below 1 under sampling)."""
    codes, names = pd.factorize(sends[column])
    flat = codes * tables.periods + (sends["t"].to_numpy() - tables.first)
    size = len(names) * tables.periods
    counts = np.bincount(flat, sends["n"], size).reshape(len(names), tables.periods)
    rows = np.bincount(codes, sends["rows_"]) / np.maximum(np.bincount(codes, sends["n"]), 1e-9)
    return [str(name) for name in names], counts, np.minimum(rows, 1.0)


def _judged(tables: Tables, attribute: str, names: list[str], counts: Array, rows: Array) -> list[Finding]:
    counts = np.stack([without_batches(row, share) for row, share in zip(counts, rows, strict=True)])
    # Drops need to know when weekends begin; a batch that comes at weekends too is no surge.
    offset = weekend_offset(counts, tables.first, STEP)
    usual = usual_range(counts, tables.first, STEP, (offset or 0) * POINT)
    if counts.shape[1] < _TWO_DAYS:
        # Some periods have no other day, and the others have one that may be the incident's.
        usual = _from_others(counts)
    seasons = season(counts, tables.first, STEP) or Season(usual.low, usual.typical, usual.high)
    local = seasons if offset is None else season(counts, tables.first, STEP, offset=offset) or seasons
    found = []
    for place, name in enumerate(names):
        series, sampled = counts[place], float(rows[place])
        typical, high = usual.typical[place], usual.high[place]
        about = {attribute: name}
        growths = _growths(tables, about, series, local.expected[place], seasons.high[place], sampled, offset)
        surges = _surges(tables, about, series, typical, high, sampled)
        surges = [each for each in surges if _exceeds(tables, each, series, seasons.expected[place])]
        growths, surges = ([each for each in part if not _is_first(tables, each, series)] for part in (growths, surges))
        growths = [each for each in growths if not any(_is_mostly(each, surge) for surge in surges)]
        # A growth is a surge at its end.
        found += [*growths, *(each for each in surges if not any(_covers(growth, each) for growth in growths))]
        drops = _drops(tables, about, series, usual.low[place], typical, sampled)
        slow = _drops(tables, about, series, _LOW * local.low[place], local.expected[place], sampled)
        slow = [each for each in slow if _is_long(each)]
        drops = [*slow, *(each for each in drops if not any(_covers(other, each) for other in slow))]
        less = _shrinkings(tables, about, series, local.expected[place], seasons.low[place], sampled)
        # A drop below the lowest usual count has the more exact beginning.
        less = [each for each in less if not any(_overlaps(each, drop) for drop in drops)]
        closed = closed_weekend(series, tables.first, STEP)
        less = [each for each in (*drops, *less) if closed is None or not _is_within(tables, each, closed)]
        found += [each for each in less if not is_day_off(series, typical, _span_of(tables, each), STEP)]
    return found


def _is_within(tables: Tables, drop: Finding, span: tuple[int, int]) -> bool:
    """Return whether a drop lies within a span of periods; it may be a point longer at both ends."""
    start, end = ((tables.first + place) * STEP for place in span)
    return start - POINT <= drop.start and drop.end <= end + POINT


def _overlaps(one: Finding, other: Finding) -> bool:
    return one.start < other.end and other.start < one.end


def _covers(wide: Finding, narrow: Finding) -> bool:
    return wide.start - 3600 <= narrow.start and narrow.end <= wide.end + 3600


def _is_mostly(wide: Finding, surge: Finding) -> bool:
    """Return whether a long surge is a short one and a little more: the surge of an upload does not last all night."""
    return wide.kind == surge.kind and _covers(wide, surge) and surge.affected >= _MOSTLY * wide.affected


def _exceeds(tables: Tables, surge: Finding, counts: Array, expected: Array) -> bool:
    """Return whether a surge exceeds the season too: the other days may have had an incident at its time."""
    span = slice(int(surge.start // STEP) - tables.first, int(surge.end // STEP) - tables.first)
    return bool(counts[span].sum() >= _BEYOND * np.nan_to_num(expected[span]).sum())


def _is_first(tables: Tables, gain: Finding, counts: Array) -> bool:
    """Return whether a topic is new or given up, so that most of a gain has no other day of it as a measure."""
    busy = np.flatnonzero(counts)
    first, last = int(busy[0]), int(busy[-1])
    if last - first < _GROWTH_HOURS * _HOUR:
        return False
    # The records may begin or end with a topic's night.
    first, last = (0 if first < _NIGHT else first), (counts.size if last >= counts.size - _NIGHT else last)
    times = np.arange(int(gain.start // STEP), int(gain.end // STEP)) - tables.first
    known = np.zeros(times.size, dtype=bool)
    for shift in other_days(counts.size, STEP):
        known |= (times + shift >= first) & (times + shift <= last)
    return counts.size >= _TWO_DAYS and bool(known.mean() < _KNOWN)


# Least part of a gain for which another day of the topic is known; periods of a night.
_KNOWN, _NIGHT = 0.5, 12 * _HOUR


def _is_long(drop: Finding) -> bool:
    """Return whether a drop is longer than batches and changes of clocks make it."""
    return drop.end - drop.start >= _LONG


def _from_others(counts: Array) -> Usual:
    """Return a range for records of less than two days: each subject's level in the hours around, at that of most."""
    level = smoothed(counts, _HOUR // 2)
    own = np.median(level, axis=1)[:, None]
    # The course is the median of the subjects that send steadily, so that one tenant's surge does not move it.
    steady = own[:, 0] >= _STEADY
    course = np.median(level[steady] / own[steady], axis=0) if steady.sum() >= _MANY else np.ones(counts.shape[1])
    width = min(_WINDOW, counts.shape[1])
    padded = np.pad(level, ((0, 0), (width // 2, width - width // 2 - 1)), mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=1), axis=2)
    expected = own * course
    return Usual(np.minimum(around, expected) * 0.7, expected, np.maximum(around, expected) * 1.3)


# Hours around a time whose median is usual; for the course, least requests of a period and
# least number of subjects.
_WINDOW = 8 * _HOUR
_STEADY, _MANY = 2.0, 5


def _surges(
    tables: Tables, about: dict[str, str], counts: Array, typical: Array, high: Array, sampled: float
) -> list[Finding]:
    expected = np.where(np.isfinite(high), high + 0.5, counts + 1.0)
    found = []
    for span in intervals(gains(counts * sampled, expected * sampled, _MORE), _LIKELIHOOD):
        seen, usual = counts[span.start : span.end].sum(), expected[span.start : span.end].sum()
        short = span.end - span.start < _GROWTH_HOURS * _HOUR
        if seen < _TIMES * most_of_other_days(counts, span, STEP):
            continue
        if short and seen >= _TIMES * usual and seen - usual >= _LEAST_MORE:
            score = likelihood(seen * sampled, usual * sampled)
            # Near a nightly batch the usual range is wide: the surge began when it exceeded the typical count.
            start = span.start
            while start > 0 and counts[start - 1] > 3.0 * typical[start - 1] + 2.0:
                start -= 1
            found.append(_finding(tables, Kind.TRAFFIC_SURGE, about, start, span.end, seen, usual, score, seen - usual))
    return found


def _growths(
    tables: Tables,
    about: dict[str, str],
    counts: Array,
    expected: Array,
    high: Array,
    sampled: float,
    offset: int | None,
) -> list[Finding]:
    """Return long surges: growth, if a rising line explains them better than a step. offset: of weekends, in points."""
    points = np.arange(counts.size) // _POINT
    seen, usual, highest = (np.bincount(points, series) for series in (counts, expected, high))
    certain = sampled / dispersion(seen * sampled, usual * sampled, 2)
    found = []
    for span in intervals(gains(seen * certain, (usual + 0.5) * certain, _GROWN), _LIKELIHOOD):
        more, less = seen[span.start : span.end].sum(), usual[span.start : span.end].sum()
        score = likelihood(more * certain, less * certain)
        if span.end - span.start < _GROWTH_POINTS or more < _GROWN_TIMES * less or more - less < _LEAST_MORE:
            continue
        if more < _ABOVE * highest[span.start : span.end].sum() or score < _LIKELIHOOD:
            continue
        # Without the growth itself, which moves the medians.
        rest = slice(max(span.start - _BEFORE, 0) * _POINT, span.end * _POINT)
        without = season(counts[None, :], tables.first, STEP, rest, offset)
        plain = usual if without is None else np.bincount(points, without.expected[0])
        peak = _peak(seen, usual, span)
        bend, gain = volume_bend(seen[:peak] * certain, plain[:peak] * certain, span.start, _REACH)
        if gain <= 0 and more < 3.0 * less:
            continue
        kind, first, last = Kind.TRAFFIC_SURGE, span.start, span.end
        if gain > 0:
            kind, first, last = Kind.TRAFFIC_GROWTH, min(bend, span.start), peak
        start, end = first * _POINT, min(last * _POINT, tables.periods)
        found.append(_finding(tables, kind, about, start, end, more, less, score, more - less))
    return found


def _shrinkings(
    tables: Tables, about: dict[str, str], counts: Array, expected: Array, low: Array, sampled: float
) -> list[Finding]:
    """Return drops to less than half of the expected counts, for hours, as when a third of the producers remains."""
    points = np.arange(counts.size) // _POINT
    seen, usual, lowest = (np.bincount(points, np.nan_to_num(series)) for series in (counts, expected, low))
    certain = sampled / dispersion(seen * sampled, usual * sampled, 2)
    # Before its first message a topic did not exist.
    usual[: int(np.argmax(seen > 0)) + 1] = 0.0
    found = []
    for span in intervals(gains(seen * certain, usual * certain, _SHRUNK), _LIKELIHOOD):
        some, more, least = (float(each[span.start : span.end].sum()) for each in (seen, usual, lowest))
        score = likelihood(some * certain, more * certain)
        if span.end - span.start < _SHRUNK_POINTS or some > _HALF * more or score < _LIKELIHOOD:
            continue
        # A batch that moves with the clocks is expected at two times; around either, the lowest count is small.
        if some <= _BELOW * least and likelihood(some * certain, least * certain) >= _SURE:
            start, end = span.start * _POINT, min(span.end * _POINT, tables.periods)
            found.append(_finding(tables, Kind.TRAFFIC_DROP, about, start, end, some, least, score, more - some))
    return found


def _peak(seen: Array, usual: Array, span: Interval) -> int:
    """Return the point at which a growth in a span ends: after it, less than the span's mean is seen."""
    mean = seen[span.start : span.end].sum() / max(usual[span.start : span.end].sum(), 1e-9)
    excess = np.cumsum(seen[span.start : span.end] - mean * usual[span.start : span.end])
    half = excess.size // 2
    return span.start + half + int(np.argmax(excess[half:])) + 1


def _span_of(tables: Tables, finding: Finding) -> slice:
    """Return the periods of a finding."""
    return slice(int(finding.start // STEP) - tables.first, int(finding.end // STEP) - tables.first)


def _drops(
    tables: Tables, about: dict[str, str], counts: Array, low: Array, typical: Array, sampled: float
) -> list[Finding]:
    expected = np.nan_to_num(low, nan=0.0)
    # Before its first message a topic did not exist.
    expected[: int(np.argmax(counts > 0))] = 0.0
    found = []
    for span in intervals(gains(counts * sampled, expected * sampled, _LESS), _LEAST_LESS * 0.5):
        seen, usual = counts[span.start : span.end].sum(), expected[span.start : span.end].sum()
        if seen <= _SHARE * usual and (usual - seen) * sampled >= _LEAST_LESS:
            start = _first_missing(counts * sampled, np.nan_to_num(typical) * sampled, span)
            # Periods without traffic may precede the first missing message.
            while start > 0 and counts[start - 1] == 0:
                start -= 1
            still = span.end >= tables.periods - 1 or not counts[span.end :].any()
            end = tables.periods if still else span.end
            # The first period has messages from before.
            silent = counts[span.start + 1 : end].sum() <= _NOTHING * usual
            kind = Kind.SILENCE if still and silent else Kind.TRAFFIC_DROP
            score = likelihood(seen * sampled, usual * sampled)
            if score >= _SURE:
                found.append(_finding(tables, kind, about, start, end, seen, usual, score, usual - seen))
    return found


def _first_missing(counts: Array, typical: Array, drop: Interval) -> int:
    """Return the period from which the share of the typical count that a drop has explains the counts best: compared
    with the lowest usual count, a drop is plain only later.
    """
    share = counts[drop.start : drop.end].sum() / max(typical[drop.start : drop.end].sum(), 1e-9)
    reach = slice(max(drop.start - min(drop.end - drop.start, _REACH_OF_DROP), 0), drop.start)
    if share > _HALF or reach.start == reach.stop:
        return drop.start
    gained = np.cumsum(gains(counts[reach], typical[reach], max(share, _LEAST_SHARE))[::-1])
    best = int(np.argmax(gained))
    return drop.start - best - 1 if gained[best] > 0 else drop.start


# Periods before a drop is plain in which it may have begun, at most; least share of the typical count that is tried.
_REACH_OF_DROP, _LEAST_SHARE = 2 * _HOUR, 0.05


def _finding(
    tables: Tables,
    kind: Kind,
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

"""Groups in Burrow's states, from messages sent, due and received: stopped, lagging, rewinding; and duplicates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analytics.incidents.daily import Course
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.statistics import Array, Interval, dispersion, gains, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables, sampled_share
from analytics.incidents.weekends import closed_weekend
from analytics.transforms.operations import RECEIVE

# Shares of the due messages below which a group is stopped, or (for an hour) lagging; factor of a rewinding one.
_STOPPED, _LAGGING, _REWINDING = 0.15, 0.7, 2.0
_LEAST = 14.0
_LIKELIHOOD = {Kind.CONSUMER_STOPPED: 14.0, Kind.CONSUMER_LAGGING: 20.0, Kind.CONSUMER_REWINDING: 40.0}
_HOUR = 3600 // STEP


@dataclass(frozen=True, slots=True)
class _Group:
    """Messages that a group takes of a topic, by period, and expected ones. sampled: rows that stand for a message."""

    about: dict[str, str]
    expected: Array
    taken: Array
    sampled: float

    def caught_up(self) -> int:
        """Return the first period in which a new group, which began with old messages, keeps up; else 0."""
        first = _first(self.taken)
        if first < _HOUR or first == self.taken.size:
            return 0
        taken, due = (_following(series, _HOUR) for series in (self.taken, self.expected))
        many, usual, misfit = (_following(series, _CATCHING_UP) for series in (taken, due, np.abs(taken - due)))
        if many[first] <= _STEADY[1] * usual[first]:
            return 0
        steady = (misfit <= _MISFIT * usual) & (np.arange(taken.size) >= first)
        # The window may begin with the last of the old messages.
        return int(np.argmax(steady)) + 2 * _HOUR if steady.any() else taken.size


def _following(series: Array, periods: int) -> Array:
    """Return the sum of so many periods from each one on."""
    return np.convolve(series, np.ones(periods))[periods - 1 :]


# Periods in which a group keeps up, and the highest difference to the due messages of an hour, as a share.
_CATCHING_UP, _MISFIT = 6 * _HOUR, 0.3


def consumers(tables: Tables) -> list[Finding]:
    """Return findings consumer_stopped, consumer_lagging, consumer_rewinding and duplicate_deliveries, by group and
    topic.
    """
    groups = list(_groups(tables))
    if not groups:
        return []
    found = []
    surpluses, backlogs = _surplus(*(np.stack([getattr(each, name) for each in groups]) for name in _SERIES))
    for group, surplus, backlog in zip(groups, surpluses, backlogs, strict=True):
        found += _states(tables, group, surplus, backlog)
    return found


_SERIES = ("expected", "taken")


def _groups(tables: Tables) -> Iterator[_Group]:
    flows = tables.flows[(tables.flows["t"] >= tables.first) & (tables.flows["t"] <= tables.last)]
    due = {
        str(topic): np.bincount(part["t"] - tables.first, part["m"], tables.periods)
        for topic, part in flows[flows["op"] == "due"].groupby("topic")
    }
    for (topic, group), part in flows[flows["op"] == RECEIVE].groupby(["topic", "grp"]):
        if str(topic) not in due:
            continue
        taken = np.bincount(part["t"] - tables.first, part["m"], tables.periods)
        usual = _ratio(due[str(topic)], taken)
        if usual > 0:
            expected = due[str(topic)] * usual
            expected[: _first(taken)] = 0.0
            sampled = sampled_share(part)
            # Where receives do not follow sends closely, only larger deviations count.
            sampled /= max(dispersion(taken * sampled, expected * sampled, block) for block in (_HOUR, _HOUR // 3))
            yield _Group({"group": str(group), "topic": str(topic)}, expected, taken, sampled)


def _states(tables: Tables, group: _Group, surplus: Array, backlog: Array) -> list[Finding]:
    about, expected, taken, sampled = group.about, group.expected, group.taken, group.sampled
    new = slice(group.caught_up())
    expected[new] = surplus[new] = 0.0
    found: list[Finding] = []
    course = Course(taken, expected, STEP, _LEAST)
    stopped = _spans(expected, taken, sampled, _STOPPED, 2, _LIKELIHOOD[Kind.CONSUMER_STOPPED])
    closed = closed_weekend(taken, tables.first, STEP)
    stopped = [span for span in stopped if not _rests(course, span, closed)]
    found += [_finding(tables, Kind.CONSUMER_STOPPED, about, span, expected, taken, backlog) for span in stopped]
    lagging = _lags(expected, taken, sampled)
    lagging = [span for span in lagging if not _rests(course, span, closed)]
    for span in (_from_first_missing(span, backlog) for span in lagging):
        covered = sum(max(min(span.end, each.end) - max(span.start, each.start), 0) for each in stopped)
        if covered < 0.3 * (span.end - span.start):
            found.append(_finding(tables, Kind.CONSUMER_LAGGING, about, span, expected, taken, backlog))
    for span in intervals(
        gains((expected + surplus) * sampled, expected * sampled + 0.2, _REWINDING),
        _LIKELIHOOD[Kind.CONSUMER_REWINDING],
    ):
        again = surplus[span.start : span.end].sum()
        if again >= max(40.0 / sampled, _AGAIN * expected[span.start : span.end].sum()):
            times = _times(expected[span.start : span.end], taken[span.start : span.end])
            kind = Kind.DUPLICATE_DELIVERIES if times else Kind.CONSUMER_REWINDING
            found.append(_finding(tables, kind, about, span, expected, taken, surplus.cumsum(), times))
    return found


def _rests(course: Course, span: Interval, weekend: tuple[int, int] | None) -> bool:
    """Return whether a group rests at the time of the day, or has a weekend off: the span is the weekend's, and on
    other days too the group rests in the nights with which it begins and ends.
    """
    if course.rests(span.start, span.end):
        return True
    if weekend is None:
        return False
    # The weekend contains its last period with messages before and the first one after.
    start, end = max(span.start, weekend[0] + 1), min(span.end, weekend[1] - 1)
    night = (end - start) % _DAY
    nights = ((start, start + night), (end - night, end))
    return end - start >= _OFF * (span.end - span.start) and all(course.rests(*each) for each in nights)


# Periods of a day; least part of a stop that is the weekend's.
_DAY, _OFF = 24 * _HOUR, 0.95


# Least surplus of a span, as a share of the due messages: of a message taken twice, a few come later.
_AGAIN = 0.9


def _times(expected: Array, taken: Array) -> int:
    """Return how many times a group took each message, if it did so for the whole span; else 0.

    A group that consumes old messages again takes as many as it can, not a multiple of the due ones; one whose members
    take the same messages takes a whole multiple of the due ones at any time.
    """
    if expected.size < 2 * _BLOCK:
        return 0
    blocks = np.arange(expected.size) // _BLOCK
    due, received = np.bincount(blocks, expected), np.bincount(blocks, taken)
    busy = due > 0.2 * due.mean()
    ratios = received[busy] / due[busy]
    ratio = float(taken.sum() / max(expected.sum(), 1e-9))
    times = round(ratio)
    close = np.abs(ratios - times) <= _CLOSE * times
    whole = 2 <= times <= _MOST_TIMES and abs(ratio - times) <= _WHOLE * times
    return times if whole and close.mean() >= _MOSTLY else 0


# Periods of a block; most members that take the same: more times as much is a backlog. How close to a multiple the
# whole and a block are, and the least share of blocks that are close.
_BLOCK, _MOST_TIMES, _WHOLE, _CLOSE, _MOSTLY = 4, 3, 0.08, 0.2, 0.7


def _ratio(due: Array, taken: Array) -> float:
    """Return the share of a topic's messages that a group takes: the median of the hours, few of which are troubled.

    Of a group that has stopped for most of the records, the median of the others.
    """
    hours = np.arange(due.size) // min(_HOUR, max(due.size // _LEAST_HOURS, 1))
    sums, received = np.bincount(hours, due), np.bincount(hours, taken)
    busy = sums >= max(10.0, 0.2 * float(np.median(sums)))
    if busy.sum() < 3:
        return 0.0
    ratios = received[busy] / sums[busy]
    alive = ratios > _ALIVE * ratios.mean()
    # Not one that takes its messages once a day.
    begun = int((np.diff(alive.astype(int), prepend=0) == 1).sum())
    if begun <= _MOST_RUNS and alive.sum() >= _LEAST_RUN * begun:
        ratios = ratios[alive]
    return float(np.median(ratios))


# Share of the mean ratio below which an hour is one of a stop; most stretches without a stop, and hours of each, of a
# group that takes its messages all the time; least number of hours, or parts of an hour.
_ALIVE, _MOST_RUNS, _LEAST_RUN, _LEAST_HOURS = 0.15, 2, 4, 12


def _first(taken: Array) -> int:
    """Return the first period in which the group took something: before, it did not exist."""
    return int(np.argmax(taken > 0)) if (taken > 0).any() else taken.size


def _surplus(expected: Array, taken: Array) -> tuple[Array, Array]:
    """Return messages taken beyond all due so far, and the backlog, of every row.

    A group that takes the due messages, and not more, has no backlog: the difference is the error of its usual share.
    """
    surplus, backlog = np.zeros(taken.shape), np.zeros(taken.shape)
    ratio = smoothed(taken, _HOUR) / np.maximum(smoothed(expected, _HOUR), 1e-9)
    kept = np.where((ratio > _STEADY[0]) & (ratio < _STEADY[1]), _FORGOTTEN, 1.0)
    behind = np.zeros(len(taken))
    for place in range(taken.shape[1]):
        behind += expected[:, place] - taken[:, place]
        surplus[:, place] = np.maximum(-behind, 0.0)
        np.maximum(behind, 0.0, out=behind)
        behind *= kept[:, place]
        backlog[:, place] = behind
    return surplus, backlog


# Ratio to the due messages at which a group keeps up; share of its backlog that remains after such a period.
_STEADY, _FORGOTTEN = (0.85, 1.1), 0.5 ** (1 / _HOUR)


def _from_first_missing(lag: Interval, backlog: Array) -> Interval:
    """Return a lag from its first missing message on: a group that is hardly too slow at first lags before it is plain.

    That is after the last time with no more than the usual backlog, which differs from zero where receives do not
    follow sends closely.
    """
    outside = np.concatenate([backlog[: lag.start], backlog[lag.end :]])
    if not outside.size:
        return lag
    reach = max(lag.start - (lag.end - lag.start) // 2, 0)
    even = np.flatnonzero(backlog[reach : lag.start] <= np.quantile(outside, _EVEN))
    return replace(lag, start=reach + int(even[-1]) + 1) if even.size else lag


# Quantile of the backlog at other times that is no lag.
_EVEN = 0.75


def _spans(expected: Array, taken: Array, sampled: float, factor: float, least: int, sure: float) -> list[Interval]:
    """Return the spans of so many periods at least in which less than this share of the due messages is taken. sure:
    least likelihood.
    """
    found = []
    for span in intervals(gains(taken * sampled, expected * sampled, factor), sure * 0.6):
        due, received = (float(series[span.start : span.end].sum()) * sampled for series in (expected, taken))
        enough = due - received >= _LEAST and received <= (factor + 0.05) * due and span.end - span.start >= least
        if enough and likelihood(received, due) >= sure:
            found.append(span)
    return found


def _lags(expected: Array, taken: Array, sampled: float) -> list[Interval]:
    """Return the spans in which a group lags: they are plain, or the group takes the missing messages after them."""
    least = _LIKELIHOOD[Kind.CONSUMER_LAGGING]
    found = []
    for span in _spans(expected, taken, sampled, _LAGGING, _HOUR, _FAINT):
        received, due = (float(series[span.start : span.end].sum()) * sampled for series in (taken, expected))
        if likelihood(received, due) + _made_up(span, expected * sampled, taken * sampled) >= least:
            found.append(span)
    return found


def _made_up(lag: Interval, expected: Array, taken: Array) -> float:
    """Return how sure it is that a group takes what it lacks just after a lag; 0 if it takes less than most of it."""
    lacking = (expected - taken)[lag.start : lag.end].sum()
    after = slice(lag.end, 2 * lag.end - lag.start)
    received, due = np.cumsum(taken[after]), np.cumsum(expected[after])
    more = np.flatnonzero(received - due >= _MADE_UP * lacking)
    return likelihood(float(received[more[0]]), float(due[more[0]])) if more.size else 0.0


# Likelihood of a lag that a following surplus has to confirm; least part of the missing messages in the surplus.
_FAINT, _MADE_UP = 8.0, 0.6


def _finding(
    tables: Tables,
    kind: Kind,
    about: dict[str, str],
    span: Interval,
    expected: Array,
    taken: Array,
    backlog: Array,
    times: int = 0,
) -> Finding:
    due, received = (float(series[span.start : span.end].sum()) for series in (expected, taken))
    rest = not taken[span.end :].any()
    still = span.end >= tables.periods - 1 or (kind == Kind.CONSUMER_STOPPED and rest)
    end = tables.periods if still else span.end
    score = likelihood(received, due)
    facts = {"backlog": f"{backlog[span.end - 1]:,.0f}", "times": str(times)}
    begin, until = ((tables.first + place) * STEP for place in (span.start, end))
    return Finding(kind, begin, until, about, received, due, score, abs(due - received), 0, still, facts)

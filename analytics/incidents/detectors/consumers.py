"""Groups in Burrow's states: stopped, lagging, rewinding, from messages sent, due and received."""

import numpy as np

from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array, Interval, dispersion, gains, intervals, likelihood, smoothed
from analytics.incidents.tables import STEP, Tables
from analytics.transforms.operations import RECEIVE

# Shares of the due messages below which a group is stopped, or (for an hour) lagging; factor of a rewinding one.
_STOPPED, _LAGGING, _REWINDING = 0.15, 0.7, 2.0
_LEAST = 14.0
_LIKELIHOOD = {"consumer_stopped": 14.0, "consumer_lagging": 20.0, "consumer_rewinding": 40.0}
_HOUR = 3600 // STEP


def consumers(tables: Tables) -> list[Finding]:
    """Return findings consumer_stopped, consumer_lagging and consumer_rewinding, by group and topic."""
    flows = tables.flows[(tables.flows["t"] >= tables.first) & (tables.flows["t"] <= tables.last)]
    due = {
        str(topic): np.bincount(part["t"] - tables.first, part["m"], tables.periods)
        for topic, part in flows[flows["op"] == "due"].groupby("topic")
    }
    found = []
    for (topic, group), part in flows[flows["op"] == RECEIVE].groupby(["topic", "grp"]):
        if str(topic) in due:
            taken = np.bincount(part["t"] - tables.first, part["m"], tables.periods)
            sampled = min(float(part["rows_"].sum() / max(part["n"].sum(), 1e-9)), 1.0)
            found += _states(tables, {"group": str(group), "topic": str(topic)}, due[str(topic)], taken, sampled)
    return found


def _states(tables: Tables, about: dict[str, str], due: Array, taken: Array, sampled: float) -> list[Finding]:
    usual = _ratio(due, taken)
    if usual <= 0:
        return []
    expected = due * usual
    first = _first(taken)
    expected[:first] = 0.0
    # Where receives do not follow sends closely, only larger deviations count.
    sampled /= max(dispersion(taken * sampled, expected * sampled, block) for block in (_HOUR, _HOUR // 3))
    surplus, backlog = _surplus(expected, taken)
    found: list[Finding] = []
    stopped = _spans(expected, taken, sampled, _STOPPED, "consumer_stopped", 2)
    found += [_finding(tables, "consumer_stopped", about, span, expected, taken, backlog) for span in stopped]
    lagging = _spans(expected, taken, sampled, _LAGGING, "consumer_lagging", _HOUR)
    for span in lagging:
        covered = sum(max(min(span.end, each.end) - max(span.start, each.start), 0) for each in stopped)
        if covered < 0.3 * (span.end - span.start):
            found.append(_finding(tables, "consumer_lagging", about, span, expected, taken, backlog))
    for span in intervals(
        gains((expected + surplus) * sampled, expected * sampled + 0.2, _REWINDING), _LIKELIHOOD["consumer_rewinding"]
    ):
        again = surplus[span.start : span.end].sum()
        if again >= max(40.0 / sampled, expected[span.start : span.end].sum()):
            found.append(_finding(tables, "consumer_rewinding", about, span, expected, taken, surplus.cumsum()))
    return found


def _ratio(due: Array, taken: Array) -> float:
    """Return the share of a topic's messages that a group takes: the median of the hours, few of which are troubled."""
    hours = np.arange(due.size) // _HOUR
    sums, received = np.bincount(hours, due), np.bincount(hours, taken)
    busy = sums >= max(10.0, 0.2 * float(np.median(sums)))
    return float(np.median(received[busy] / sums[busy])) if busy.sum() >= 3 else 0.0


def _first(taken: Array) -> int:
    """Return the first period in which the group took something: before, it did not exist."""
    return int(np.argmax(taken > 0)) if (taken > 0).any() else taken.size


def _surplus(expected: Array, taken: Array) -> tuple[Array, Array]:
    """Return messages taken beyond all due so far, and the backlog.

    A group that takes what is due, and not more, has no backlog: the difference is the error of its usual share.
    """
    surplus, backlog = np.zeros(taken.size), np.zeros(taken.size)
    ratio = smoothed(taken, _HOUR) / np.maximum(smoothed(expected, _HOUR), 1e-9)
    steady = (ratio > _STEADY[0]) & (ratio < _STEADY[1])
    behind = 0.0
    for place in range(taken.size):
        behind += expected[place] - taken[place]
        if behind < 0:
            surplus[place], behind = -behind, 0.0
        elif steady[place]:
            behind *= _FORGOTTEN
        backlog[place] = behind
    return surplus, backlog


# Ratio to the due messages at which a group keeps up; share of its backlog that remains after such a period.
_STEADY, _FORGOTTEN = (0.85, 1.1), 0.5 ** (1 / _HOUR)


def _spans(expected: Array, taken: Array, sampled: float, factor: float, kind: str, least: int) -> list[Interval]:
    found = []
    for span in intervals(gains(taken * sampled, expected * sampled, factor), _LIKELIHOOD[kind] * 0.6):
        due, received = (float(series[span.start : span.end].sum()) * sampled for series in (expected, taken))
        enough = due - received >= _LEAST and received <= (factor + 0.05) * due and span.end - span.start >= least
        if enough and likelihood(received, due) >= _LIKELIHOOD[kind]:
            found.append(span)
    return found


def _finding(
    tables: Tables, kind: str, about: dict[str, str], span: Interval, expected: Array, taken: Array, backlog: Array
) -> Finding:
    due, received = (float(series[span.start : span.end].sum()) for series in (expected, taken))
    rest = not taken[span.end :].any()
    still = span.end >= tables.periods - 1 or (kind == "consumer_stopped" and rest)
    end = tables.periods if still else span.end
    score = likelihood(received, due)
    facts = {"backlog": f"{backlog[span.end - 1]:,.0f}"}
    begin, until = ((tables.first + place) * STEP for place in (span.start, end))
    return Finding(kind, begin, until, about, received, due, score, abs(due - received), 0, still, facts)

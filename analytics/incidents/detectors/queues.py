"""Queues that a group no longer takes or commits, and clients that stop while the others of their group work.

Expectations come from the same time, so that hours and days do not matter: deliveries of a queue follow the sends to
it, its commits follow its deliveries, and a client follows the other clients of its group.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analytics.incidents.daily import Course
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.statistics import Array, dispersion, gains, intervals, likelihood
from analytics.incidents.tables import COARSE, STEP, Tables, sampled_share
from analytics.transforms.operations import ACK, RECEIVE, SEND

_LESS, _SHARE, _LIKELIHOOD = 0.1, 0.2, 20.0
_MORE, _TIMES, _MORE_LEAST, _MORE_SHARE = 3.0, 3.0, 60.0, 0.3
# Commits and messages of a queue and period that count.
_COMMITS = 2.0
# A stopped client matters if its group takes less than this share of the due messages, and how sure that must be; least
# messages that the group misses, as a share of the client's, if none of the others takes over.
_MISSING, _MISSING_LIKELIHOOD, _OF_CLIENT = 0.92, 2.0, 0.5
# Seconds before a stop from which the usual share of the due messages is known.
_BEFORE = 6 * 3600
# A client that takes nothing at all needs less evidence of its own, because its group's missing messages are further.
_NOTHING, _SURE, _TOGETHER = 0.05, 12.0, 18.0


def queues(tables: Tables) -> list[Finding]:
    """Return findings queue_stopped, commits_stopped and queue_skew, by group and queue."""
    place = tables.queues["broker"].astype(str) + "/" + tables.queues["queue"].astype(int).astype(str)
    rows = tables.queues.assign(queue=place)
    sent = {str(topic): part for topic, part in rows[rows["op"] == SEND].groupby("topic")}
    scheduled = set(tables.delays["topic"])
    found = []
    for (topic, group), part in rows[rows["grp"].notna()].groupby(["topic", "grp"]):
        about = {"group": str(group), "topic": str(topic)}
        received, acked = (part[part["op"] == op] for op in (RECEIVE, ACK))
        # Receives follow the queue's sends, and commits its receives; siblings are the substitute.
        sends = None if topic in scheduled else sent.get(str(topic))
        found += _stops(tables, Kind.QUEUE_STOPPED, about, received, "queue", sends)
        found += _stops(tables, Kind.COMMITS_STOPPED, about, acked, "queue", received if len(received) else None)
        found += _uncommitted(tables, about, acked, received)
    for topic, part in sent.items():
        found += _skews(tables, {"topic": topic}, part)
    return [_split(each) if "queue" in each.about else each for each in found]


def clients(tables: Tables) -> list[Finding]:
    """Return findings client_stopped: a consumer that takes nothing while its group goes on, and messages wait."""
    found = []
    received = tables.members[(tables.members["op"] == RECEIVE) & tables.members["grp"].notna()]
    for (topic, group), part in received.groupby(["topic", "grp"]):
        about = {"group": str(group), "topic": str(topic)}
        stops = _stops(tables, Kind.CLIENT_STOPPED, about, part, "client", None, _SURE)
        found += [each for each in stops if _is_plain(each, _missing(tables, each))]
    return found


def _is_plain(stop: Finding, missing: float) -> bool:
    """Return whether a client stopped. missing: how sure it is that messages of its group are missing."""
    if missing < _MISSING_LIKELIHOOD:
        return False
    if stop.likelihood >= _LIKELIHOOD and stop.expected - stop.observed >= _LIKELIHOOD:
        return True
    return stop.observed <= _NOTHING * stop.expected and stop.likelihood + missing >= _TOGETHER


def _missing(tables: Tables, stop: Finding) -> float:
    """Return how sure it is that the group took fewer than the due messages meanwhile, as without its client; 0 if it
    did not.
    """
    flows = tables.flows[tables.flows["topic"] == stop.about["topic"]]
    during = (flows["t"] >= stop.start / STEP) & (flows["t"] < stop.end / STEP)
    # Just before: other days have other members, and other rates.
    before = (flows["t"] >= (stop.start - _BEFORE) / STEP) & (flows["t"] < stop.start / STEP)
    own = (flows["op"] == RECEIVE) & (flows["grp"] == stop.about["group"])
    due = flows["op"] == "due"
    if not flows[due & before]["m"].sum():
        before = ~during
    inside, outside = (
        (float(flows[own & when]["m"].sum()), float(flows[due & when]["m"].sum())) for when in (during, before)
    )
    # A group takes each message once; before, it may have taken a backlog, or messages that were sent earlier.
    usual = min(outside[0] / max(outside[1], 1e-9), 1.0)
    lacking = usual * inside[1] - inside[0]
    if inside[0] >= _MISSING * usual * inside[1] or lacking < _OF_CLIENT * (stop.expected - stop.observed):
        return 0.0
    sampled = sampled_share(flows[own])
    return likelihood(inside[0] * sampled, usual * inside[1] * sampled)


def _split(finding: Finding) -> Finding:
    broker, _, queue = finding.about["queue"].rpartition("/")
    about = {**finding.about, "broker": broker, "queue": queue}
    return Finding(**{name: getattr(finding, name) for name in Finding.__slots__} | {"about": about})


def _matrix(tables: Tables, part: pd.DataFrame, column: str) -> tuple[list[str], Array, int]:
    first, periods = tables.first // COARSE, _periods(tables)
    codes, names = pd.factorize(part[column])
    flat = codes * periods + (part["t"].to_numpy() - first)
    # Polls without messages go on at a queue that stands still; commits have no messages.
    amount = np.where(part["op"] == ACK, part["n"], part["m"])
    counts = np.bincount(flat, amount, len(names) * periods).reshape(len(names), periods)
    return [str(name) for name in names], counts, first


def _stops(
    tables: Tables,
    kind: Kind,
    about: Mapping[str, str],
    part: pd.DataFrame,
    column: str,
    source: pd.DataFrame | None,
    least: float = _LIKELIHOOD,
) -> list[Finding]:
    """Return the subjects of a column that stopped. source: requests that their own follow; None: the siblings'. least:
    likelihood, and missing messages.
    """
    names, counts, _ = _matrix(tables, part, column)
    if len(names) < 2:
        return []
    sampled = sampled_share(part)
    given = {} if source is None else dict(zip(*_matrix(tables, source, column)[:2], strict=True))
    total = counts.sum(axis=0)
    found = []
    for place, name in enumerate(names):
        begins, ends = _life(counts, place) if column == "client" else (int(np.argmax(total > 0)), total.size)
        series = counts[place, begins:ends]
        others = given[name] if name in given else total - counts[place]
        others = others[begins:ends]
        if kind == Kind.COMMITS_STOPPED and name in given:
            # One commit covers all messages of some seconds: more messages are not more commits.
            series, others = np.minimum(series, _COMMITS / sampled), np.minimum(others, _COMMITS / sampled)
        # A group that takes a day's messages in an hour takes each of them once.
        most = 1.0 if kind == Kind.QUEUE_STOPPED and name in given else np.inf
        subject = {**about, column: name}
        found += _spans(tables, kind, subject, series, others, begins, sampled, least, most)
    return found


def _uncommitted(
    tables: Tables, about: Mapping[str, str], acked: pd.DataFrame, received: pd.DataFrame
) -> list[Finding]:
    """Return the times in which a group takes messages and commits no queue; each alone may have few commits."""
    if acked.empty or received.empty:
        return []
    sampled = sampled_share(acked)
    commits, taken = (
        np.minimum(_matrix(tables, part, "queue")[1], _COMMITS / sampled).sum(axis=0) for part in (acked, received)
    )
    begins = int(np.argmax(commits > 0))
    rest = (commits[begins:], taken[begins:], begins, sampled, _LIKELIHOOD, np.inf)
    return _spans(tables, Kind.COMMITS_STOPPED, about, *rest)


def _spans(
    tables: Tables,
    kind: Kind,
    about: Mapping[str, str],
    series: Array,
    others: Array,
    begins: int,
    sampled: float,
    least: float,
    most: float,
) -> list[Finding]:
    """Return the spans in which a series stands still while others go on. begins: its first period in the records;
    sampled: records that stand for one; least: as for `_stops`; most: highest ratio to the others.
    """
    # Ratio in blocks of several hours: blocks of trouble are few.
    expected = min(_usual_ratio(series, others), most) * others
    # Where receives do not follow sends closely, only larger deviations count.
    blocks = (_HOUR, max(min(6 * _HOUR, series.size // _FEW), _HOUR))
    certain = sampled / max(dispersion(series * sampled, expected * sampled, block) for block in blocks)
    found = []
    for span in intervals(gains(series * certain, expected * certain, _LESS), min(least, _SURE) * 0.7):
        seen, usual = (float(each[span.start : span.end].sum()) for each in (series, expected))
        score = likelihood(seen * certain, usual * certain)
        still = begins + span.end >= _periods(tables) - 1
        # Only one span of each subject lasts to the end, so that fewer of these are due to chance.
        enough = min(least, _SURE) if still and not seen else least
        if seen > _SHARE * usual or (usual - seen) * certain < enough or score < enough:
            continue
        if Course(series, expected, COARSE * STEP, _TELLING).rests(span.start, span.end):
            continue
        # The subject stopped between its last event and the first missing one.
        last = int(np.flatnonzero(series[: span.start]).max(initial=-1)) + 1
        first = tables.first // COARSE + begins
        start, end = ((first + edge) * COARSE * STEP for edge in ((last + span.start) // 2, span.end))
        found.append(Finding(kind, start, end, about, seen, usual, score, usual - seen, 1, still))
    return found


def _periods(tables: Tables) -> int:
    return tables.last // COARSE - tables.first // COARSE + 1


# Periods of an hour; the least number of longer blocks from which the dispersion is estimated, so that a stop is in
# few of them.
_HOUR, _FEW = 3600 // (COARSE * STEP), 8
# Least messages or commits of an hour with a share.
_TELLING = 4.0


def _life(counts: Array, place: int) -> tuple[int, int]:
    """Return the periods in which a client existed: from its first message on, and to its last one if another client
    of its group began then: a consumer that starts again has a new id.
    """
    busy = counts > 0
    first, last = int(np.argmax(busy[place])), counts.shape[1] - 1 - int(np.argmax(busy[place, ::-1]))
    begun = np.delete(busy.argmax(axis=1), place)
    # At the first period of the records, all begin.
    replaced = ((begun > 0) & (begun > first) & (np.abs(begun - last) <= _SUCCESSOR)).any()
    return first, last + 1 if replaced else counts.shape[1]


# Periods between a client's last message and the first one of its successor.
_SUCCESSOR = 2


def _usual_ratio(series: Array, others: Array) -> float:
    """Return the median ratio of blocks of several hours, eight at least; of a subject that has stopped for most of the
    records, the median of those before.
    """
    width = min(6 * 3600 // (COARSE * STEP), max(series.size // 8, 1))
    blocks = np.arange(series.size) // width
    own, rest = np.bincount(blocks, series), np.bincount(blocks, others)
    busy = rest > 0
    if not busy.any():
        return 0.0
    ratios, weights = own[busy] / rest[busy], rest[busy]
    alive = ratios > _ALIVE * np.average(ratios, weights=weights)
    if alive.mean() >= _LEAST_ALIVE:
        ratios, weights = ratios[alive], weights[alive]
    order = np.argsort(ratios)
    sums = np.cumsum(weights[order])
    return float(ratios[order][np.searchsorted(sums, 0.5 * sums[-1])])


# Share of the mean ratio below which a block is one of a stop; least share of the blocks that are none.
_ALIVE, _LEAST_ALIVE = 0.15, 0.2


def _top_share(counts: Array) -> float:
    """Return the usual share of the queue with most messages, whichever it is, in hours with some for each queue."""
    hours = np.arange(counts.shape[1]) // _HOUR
    sums = np.stack([np.bincount(hours, row) for row in counts])
    busy = sums.sum(axis=0) >= _FOR_EACH * len(counts)
    return float(np.median(sums[:, busy].max(axis=0) / sums[:, busy].sum(axis=0))) if busy.any() else 0.0


# Least ratio of a skew to the usual share of the top queue; least messages for each queue of an hour that
# counts for this share.
_BEYOND_TOP, _FOR_EACH = 1.5, 4.0


def _skews(tables: Tables, about: Mapping[str, str], part: pd.DataFrame) -> list[Finding]:
    names, counts, first = _matrix(tables, part, "queue")
    if len(names) < 2:
        return []
    sampled = sampled_share(part)
    total = counts.sum(axis=0)
    # Where messages of one key after the other go to one queue after the other, one has most of them at any time.
    usual_top = _top_share(counts)
    found = []
    for place, name in enumerate(names):
        series = counts[place]
        share = float(np.median((series + 0.5)[total > 0] / (total + 1)[total > 0])) if (total > 0).any() else 1.0
        expected = total * max(share, 0.5 / len(names))
        for span in intervals(gains(series * sampled, expected * sampled, _MORE), 25.0):
            seen, usual = (float(each[span.start : span.end].sum()) for each in (series, expected))
            whole = float(total[span.start : span.end].sum())
            if seen < _BEYOND_TOP * usual_top * whole:
                continue
            if seen >= _TIMES * usual and (seen - usual) * sampled >= _MORE_LEAST and seen >= _MORE_SHARE * whole:
                start, end = ((first + edge) * COARSE * STEP for edge in (span.start, span.end))
                score = likelihood(seen * sampled, usual * sampled)
                found.append(
                    Finding(Kind.QUEUE_SKEW, start, end, {**about, "queue": name}, seen, usual, score, seen - usual)
                )
    return found

"""The worst span of each series of bad events: where their share exceeds the usual one most."""

from dataclasses import dataclass

import numpy as np

from analytics.incidents.statistics import Array, best_intervals, gains


@dataclass(frozen=True, slots=True)
class Limits:
    """When a cluster counts. factor: of the rate for which the CUSUM is made; events, share, ratio, likelihood: least
    number of bad events, least excess as a share of the requests, least ratio to the usual, least likelihood ratio.
    floor: lowest usual share. sharpness: the final CUSUM's factor is the found ratio divided by this; low for changes
    that are there at once. most: highest number of clusters of one scan.
    """

    factor: float = 2.0
    events: float = 8.0
    share: float = 0.01
    ratio: float = 2.5
    likelihood: float = 16.0
    floor: float = 5e-4
    sharpness: float = 3.0
    most: int = 40


# Periods at the beginning of the records in which a new version has no requests: an hour.
NEW = 12


def worst_spans(
    bad: Array, total: Array, common: float | Array, limits: Limits, new: Array
) -> tuple[Array, Array, Array]:
    """Return start and end of each row's worst span, and the usual share outside of it. new: rows whose usual share is
    that of all others, because they have none of their own.
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
        first, last = _trimmed(bad[row], int(start[row]), int(end[row]))
        start[row], end[row] = _unbroken(bad[row], total[row], first, last)
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
        count = int(min(bad[row].sum() / _BLOCK_EVENTS, bad.shape[1] / NEW))
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
    """Return the spans, or the denser ones inside of them that are likelier: two incidents of a day stay two."""
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
# Number of events from which single ones may be stray.
_EDGE_EVENTS = 40


def _trimmed(bad: Array, start: int, end: int) -> tuple[int, int]:
    """Return a span without edges of few events before or after a long pause: at night there are few requests, so that
    a stray event hours before would belong to the span.
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


def _unbroken(bad: Array, total: Array, start: int, end: int) -> tuple[int, int]:
    """Return the part of a span with most events between long pauses without one, in which many would be due: two
    troubles of one subject, hours apart, are two.
    """
    while end - start > _BREAK:
        seen, requests = bad[start:end], total[start:end]
        places = np.concatenate([[-1], np.flatnonzero(seen), [seen.size]])
        sums = np.concatenate([[0.0], requests.cumsum()])
        pauses = np.diff(places) - 1
        due = (sums[places[1:]] - sums[places[:-1] + 1]) * seen.sum() / max(requests.sum(), 1e-9)
        single = seen[seen > 0].min(initial=np.inf)
        breaks = (pauses >= max(_BREAK, _BREAK_TIME * seen.size)) & (due >= _BREAK_EVENTS * single)
        if not breaks.any():
            break
        # Each part begins with the event after a pause and ends before the next one.
        marks = np.flatnonzero(breaks)
        firsts = np.concatenate([[0], places[marks + 1]])
        lasts = np.concatenate([places[marks] + 1, [seen.size]])
        events = [seen[first:last].sum() for first, last in zip(firsts, lasts, strict=True)]
        best = int(np.argmax(events))
        start, end = start + int(firsts[best]), start + int(lasts[best])
    return start, end


# Periods of a long pause, its least share of the span, and the events that would be due in it.
_BREAK, _BREAK_TIME, _BREAK_EVENTS = 24, 0.25, 20.0

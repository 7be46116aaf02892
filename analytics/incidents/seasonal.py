"""The expected count at a time of the day: a daily curve times the level of working days or weekends.

Medians over the days make the curve, so that one day's incident does not move it, and so do weekends' levels: four days
suffice. The curve's lowest and highest value around a time allow for clocks that change, and for batches that move.
"""

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from analytics.incidents.statistics import Array, smoothed

_DAY = 86400
# Seconds of a point of the curve, over which it is averaged, and around a time that count as the same.
POINT = 1800
_SMOOTH, _AROUND = 3, 3
# Points around midnight at which a weekend may begin or end: twelve hours.
_ZONES = 24
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Season:
    """Expected counts of every row and period, and the lowest and highest around its time of the day."""

    low: Array
    expected: Array
    high: Array


def season(
    counts: Array, first: int, step: int, hidden: slice | None = None, offset: int | None = None
) -> Season | None:
    """Return the expected counts of series by period of `step` seconds, the first of which is number `first` since
    1970; None for records of less than two days. hidden: periods that are left out of the curve. offset: points by
    which weekends begin after midnight UTC; None: unknown.
    """
    width = POINT // step
    lead = first % width
    padded = np.pad(counts.astype(float), ((0, 0), (lead, -(counts.shape[1] + lead) % width)))
    points = padded.reshape(len(counts), -1, width).sum(axis=2)
    per_day = _DAY // POINT
    begin = first // width
    numbers = np.arange(points.shape[1]) + begin
    days, times = numbers // per_day, numbers % per_day
    if points.shape[1] < 2 * per_day:
        return None
    weekend = _weekends(numbers - (offset or 0))
    grid = np.full((len(counts), days[-1] - days[0] + 1, per_day), np.nan)
    level = smoothed(points, _SMOOTH)
    if hidden is not None:
        level[:, (hidden.start + lead) // width : (hidden.stop + lead) // width + 1] = np.nan
    grid[:, days - days[0], times] = level
    kinds = np.zeros(grid.shape[1:], dtype=bool)
    kinds[days - days[0], times] = weekend
    curve, levels = _fit(grid, kinds)
    around = np.stack([np.roll(curve, shift, axis=1) for shift in range(-_AROUND, _AROUND + 1)])
    scale = levels[:, days - days[0], times]
    # Weekends begin and end at other hours of UTC elsewhere.
    reach = _ZONES if offset is None else _AROUND
    near = np.pad(scale, ((0, 0), (reach, reach)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(near, 2 * reach + 1, axis=1)
    low = np.repeat(around.min(axis=0)[:, times] * windows.min(axis=2), width, axis=1)
    high = np.repeat(around.max(axis=0)[:, times] * windows.max(axis=2), width, axis=1)
    expected = np.repeat(curve[:, times] * scale, width, axis=1)
    inside = slice(lead, lead + counts.shape[1])
    return Season(low[:, inside] / width, expected[:, inside] / width, high[:, inside] / width)


def _weekends(points: Array) -> Array:
    """Return which points, by number since 1970, lie in a weekend."""
    days = points * POINT // _DAY
    return np.array([datetime.fromtimestamp(int(day) * _DAY, UTC).weekday() >= 5 for day in days])


def weekend_offset(counts: Array, first: int, step: int) -> int | None:
    """Return the points by which weekends begin after midnight UTC, from the hour at which most series change their
    level; None if there is no such hour: records without a weekend's edge, or with users in many zones.
    """
    width = POINT // step
    lead = first % width
    padded = np.pad(counts.astype(float), ((0, 0), (lead, -(counts.shape[1] + lead) % width)))
    seen = padded.reshape(len(counts), -1, width).sum(axis=2)
    numbers = np.arange(seen.shape[1]) + first // width
    if not 0 < _weekends(numbers).mean() < 1:
        return None
    # Series of different sizes count alike; the largest deviations are incidents.
    misfits = {}
    for offset in range(-_ZONES, _ZONES + 1, 2):
        made = season(counts, first, step, offset=offset)
        if made is None:
            return None
        expected = np.pad(made.expected, ((0, 0), (lead, -(counts.shape[1] + lead) % width)))
        expected = expected.reshape(seen.shape[0], -1, width).sum(axis=2)
        misfit = (seen - expected) ** 2 / (expected + 1)
        misfits[offset] = float(np.minimum(misfit, _OUTLIER).sum())
    best = min(misfits, key=misfits.__getitem__)
    # The first or the last one tried is no minimum.
    return best if abs(best) < _ZONES and misfits[best] < _PLAIN * float(np.median(list(misfits.values()))) else None


# Squared deviation beyond which a point says nothing about weekends; ratio of the best offset's misfit to the median.
_OUTLIER, _PLAIN = 20.0, 0.97


def _fit(grid: Array, kinds: Array) -> tuple[Array, Array]:
    """Return the curve (rows by times of the day) and the level of each point (as the grid). kinds: weekends."""
    level = np.ones(grid.shape)
    curve = np.ones((grid.shape[0], grid.shape[2]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(_ROUNDS):
            for kind in (True, False):
                if (kinds == kind).any():
                    level[:, kinds == kind] = _level(np.where(kinds == kind, grid, np.nan), curve)[:, None]
            curve = np.nan_to_num(np.nanmedian(grid / np.maximum(level, 1e-9), axis=1))
    return curve, level


def _level(grid: Array, curve: Array) -> Array:
    """Return the median over all times, weighted by the curve, of the ratio to the curve."""
    result = np.ones(len(grid))
    for row, values in enumerate(grid):
        weights = np.broadcast_to(curve[row], values.shape)
        known = np.isfinite(values) & (weights > 0)
        if known.any():
            ratios, sizes = values[known] / weights[known], weights[known]
            order = np.argsort(ratios)
            sums = np.cumsum(sizes[order])
            result[row] = ratios[order][np.searchsorted(sums, 0.5 * sums[-1])]
    return np.maximum(result, 1e-9)

"""Statistics of counts over time: the interval in which a count deviates most, and how sure that is.

The measure is the likelihood ratio of a Poisson count against its expectation, as in scan statistics (Kulldorff: A
spatial scan statistic, 1997). The interval is that of a CUSUM for a change of the rate by a factor (Page 1954): the
largest sum of the log likelihood ratios of consecutive periods.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """Periods [start, end) of one row."""

    row: int
    start: int
    end: int
    gain: float


def gains(counts: Array, expected: Array, factor: float | Array) -> Array:
    """Return the log likelihood ratio of each count for a rate changed by `factor`, one or one for each row."""
    return np.asarray(counts * np.log(factor) - expected * (factor - 1))


def best_intervals(values: Array) -> tuple[Array, Array, Array]:
    """Return start, end and sum of the interval with the largest sum, for every row of a matrix.

    The sum up to its end, less the lowest sum up to an earlier start, is largest.
    """
    rows, length = values.shape
    sums = np.zeros((rows, length + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    lowest = np.minimum.accumulate(sums[:, :-1], axis=1)
    gained = sums[:, 1:] - lowest
    last = gained.argmax(axis=1)
    each = np.arange(rows)
    # The latest start of equally good ones: the interval is the shortest.
    at_lowest = (sums[:, :-1] == lowest[each, last][:, None]) & (np.arange(length) <= last[:, None])
    start = length - 1 - at_lowest[:, ::-1].argmax(axis=1)
    return start, last + 1, gained[each, last]


def intervals(values: Array, least: float) -> list[Interval]:
    """Return disjoint intervals of one series whose sum is at least `least`, the best first."""
    found = []
    rest = values.astype(float).copy()
    # No interval gains by containing such a period.
    excluded = -1.0 - np.clip(rest, 0, None).sum()
    for _ in range(12):
        start, end, gain = best_intervals(rest[None, :])
        if gain[0] < least:
            break
        found.append(Interval(0, int(start[0]), int(end[0]), float(gain[0])))
        rest[start[0] : end[0]] = excluded
    return found


def likelihood(count: float, expected: float) -> float:
    """Return the log likelihood ratio of a count against its expectation, for more as for less."""
    bound = max(expected, 1e-9)
    return float((count * np.log(count / bound) if count > 0 else 0.0) - (count - bound))


# Highest share of the expectation in a stop.
_STOPPED = 0.1
# Mean of the lower four fifths of squares of standard normal values.
_LOWER_MEAN = 0.44


def dispersion(counts: Array, expected: Array, block: int) -> float:
    """Return the variance of counts as a multiple of a Poisson count's, at least 1, without the most deviating fifth of
    the blocks of so many periods: batches and unrelated arrivals deviate more than single messages. Blocks of a stop,
    which may last for most of the records, are left out.
    """
    blocks = np.arange(counts.size) // block
    seen, usual = np.bincount(blocks, counts), np.bincount(blocks, expected)
    alive = (usual > 0) & (seen > _STOPPED * usual)
    squares = np.sort((seen - usual)[alive] ** 2 / np.maximum(usual[alive], 0.5))
    lower = squares[: max(int(0.8 * squares.size), 1)]
    return max(float(lower.mean()) / _LOWER_MEAN, 1.0) if squares.size else 1.0


def smoothed(values: Array, width: int) -> Array:
    """Return the moving average of the rows over `width` periods, shorter at the ends."""
    width = min(width, values.shape[-1])
    if width <= 1:
        return values.astype(float)
    kernel = np.ones(width)
    norm = np.convolve(np.ones(values.shape[-1]), kernel, "same")
    return np.apply_along_axis(lambda row: np.convolve(row, kernel, "same"), -1, values.astype(float)) / norm

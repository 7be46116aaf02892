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
    which may last for most of the records, tell nothing.
    """
    blocks = np.arange(counts.size) // block
    seen, usual = np.bincount(blocks, counts), np.bincount(blocks, expected)
    alive = (usual > 0) & (seen > _STOPPED * usual)
    squares = np.sort((seen - usual)[alive] ** 2 / np.maximum(usual[alive], 0.5))
    lower = squares[: max(int(0.8 * squares.size), 1)]
    return max(float(lower.mean()) / _LOWER_MEAN, 1.0) if squares.size else 1.0


def hinge(values: Array, weights: Array) -> tuple[int, float, float]:
    """Fit logarithms that are level and then grow, in a straight line or as the logarithm of one; return the place of
    the bend and the squared errors of this and of a step.
    """
    length = values.size
    place = np.arange(length)
    best = (0, np.inf)
    step = np.inf
    total = weights.sum()
    for bend in range(1, length - 2):
        age = np.clip(place - bend, 0, None) / (length - bend)
        for shape, handicap in ((age, 1.0), *((np.log1p(factor * age), _HANDICAP) for factor in _FACTORS)):
            mean_x, mean_y = (weights * shape).sum() / total, (weights * values).sum() / total
            spread = (weights * (shape - mean_x) ** 2).sum()
            gradient = (weights * (shape - mean_x) * (values - mean_y)).sum() / max(spread, 1e-12)
            error = handicap * float((weights * (values - mean_y - gradient * (shape - mean_x)) ** 2).sum())
            if error < best[1]:
                best = (bend, error)
        before, after = weights[:bend].sum(), weights[bend:].sum()
        if before > 0 and after > 0:
            low = (weights[:bend] * values[:bend]).sum() / before
            high = (weights[bend:] * values[bend:]).sum() / after
            error = float(
                (weights[:bend] * (values[:bend] - low) ** 2).sum()
                + (weights[bend:] * (values[bend:] - high) ** 2).sum()
            )
            step = min(step, error)
    return best[0], best[1], step


# Growth of a value in a straight line to this multiple, less one.
_FACTORS = (1.0, 3.0, 8.0)
# Factor of the squared error of such a curve: where it is little better than the straight line, its bend is too late.
_HANDICAP = 1.25


def smoothed(values: Array, width: int) -> Array:
    """Return the moving average of the rows over `width` periods, shorter at the ends."""
    width = min(width, values.shape[-1])
    if width <= 1:
        return values.astype(float)
    kernel = np.ones(width)
    norm = np.convolve(np.ones(values.shape[-1]), kernel, "same")
    return np.apply_along_axis(lambda row: np.convolve(row, kernel, "same"), -1, values.astype(float)) / norm


def growth(bad: Array, total: Array, usual: float) -> tuple[int, float]:
    """Return the period from which a share grows from its usual value in a straight line, and how much likelier
    (logarithm) such lines are than steps to a constant share. All bends and levels count, not only the likeliest.
    """
    width = max(bad.size // 150, 1)
    blocks = np.arange(bad.size) // width
    seen, requests = np.bincount(blocks, bad), np.bincount(blocks, total)
    length = seen.size
    end = slice(-max(length // 6, 1), None)
    last = max(float(seen[end].sum() / max(requests[end].sum(), 1.0)), usual * 1.5)
    lines = np.full((max(length - 2, 1), len(_FINALS)), -np.inf)
    steps = lines.copy()
    for bend in range(length - 2):
        age = np.clip(np.arange(length) - bend, 0, None) / (length - bend)
        mean = max(float(seen[bend:].sum() / max(requests[bend:].sum(), 1.0)), usual * 1.2)
        for column, final in enumerate(_FINALS):
            lines[bend, column] = _fit(seen, requests, usual + max(final * last - usual, 0.0) * age)
            level = np.where(np.arange(length) >= bend, max(final * mean, usual), usual)
            steps[bend, column] = _fit(seen, requests, level)
    return likely_bend(lines, _LATE) * width, _mean_likelihood(lines) - _mean_likelihood(steps)


def _mean_likelihood(fits: Array) -> float:
    """Return the logarithm of the mean of likelihoods, given as logarithms."""
    highest = fits.max()
    return float(highest + np.log(np.exp(fits - highest).mean()))


def likely_bend(fits: Array, share: float) -> int:
    """Return the bend up to which this share of the likelihood lies. fits: log likelihoods, of bends by ends.

    The likeliest bend would be just before the first visible event, which is too late.
    """
    weights = np.exp(fits - fits.max()).sum(axis=1)
    return int(np.searchsorted(np.cumsum(weights), share * weights.sum()))


# Likewise for failures: a stray one long before a growth makes all bends in between possible.
_LATE = 0.6
# Shares at the end of a growth that are tried, as multiples of the last sixth's.
_FINALS = (0.7, 0.85, 1.0, 1.15, 1.3, 1.5)


def _fit(seen: Array, requests: Array, share: Array) -> float:
    return float((seen * np.log(share) - requests * share).sum())

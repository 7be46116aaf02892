"""The onset of a gradual change: a growth over hours begins long before it is plain.

Growths of several courses are fitted from every period on: in a straight line, accelerating, in a straight line up to a
level that lasts, and exponential. The likelihoods of all fits together give where the growth begins, so that no single
course has to be the right one.
"""

import warnings
from collections.abc import Iterator

import numpy as np

from analytics.incidents.statistics import Array, smoothed
from analytics.incidents.tables import STEP

# Values at the end of a growth, as multiples of the usual one.
_MULTIPLES = np.exp(np.linspace(np.log(1.3), np.log(30.0), 24))
# Shares of its time after which a growth has reached its level.
_REACHED = (0.5, 0.75)
# Weights of the courses before anything is known.
_EXPONENTIAL, _STRAIGHT, _ACCELERATING, _LEVELLING = 1.0, 1.0, 0.1, 0.3
# Least number of periods of a growth.
_SHORTEST = 5
# Degrees of freedom of residuals: outliers do not move the onset.
_FREEDOM = 4.0
# Share of the likelihood before an onset.
_MIDDLE = 0.5


def latency_bend(values: Array, weights: Array) -> tuple[int, float]:
    """Return the place from which logarithms of latency grow, and how much likelier than a step that is (a logarithm).

    weights: number of requests of each value; 0 where it is unknown.
    """
    length = values.size
    bends = np.arange(1, length - _SHORTEST)
    ages = _ages(length, bends)
    known = int((weights > 0).sum())
    precision = weights.astype(float)
    fits = list(_logarithms(ages))
    results = [_squared_error(values, precision, shape, scaled) for _, shape, scaled in fits]
    # Once more without the outliers of the best fit.
    which = min(range(len(fits)), key=lambda place: float(results[place][0].min()))
    row = int(results[which][0].argmin())
    residuals = values - results[which][1][row] * fits[which][1][row]
    residuals = residuals - np.average(residuals, weights=precision)
    variance = max(float((weights * residuals**2).sum()) / known, 1e-12)
    precision = weights * (_FREEDOM + 1) / (_FREEDOM + weights * residuals**2 / variance)
    errors = np.stack([_squared_error(values, precision, shape, scaled)[0] for _, shape, scaled in fits])
    best = max(float(errors.min()), 1e-12)
    priors = np.array([prior for prior, *_ in fits])
    mass = priors @ (np.maximum(errors, 1e-12) / best) ** (-known / 2)
    gain = known / 2 * float(np.log(max(_step_error(values, precision), 1e-12) / best))
    return int(bends[_quantile(mass, _MIDDLE)]), gain


def daily_course(sums: Array, weights: Array, first: int, hidden: slice) -> Array:
    """Return how far the mean of each period usually lies above the level of its day, from the other days; zeros where
    the time of the day does not explain the values.

    sums, weights: of values and their number, by period, the first of which is number `first` since 1970. hidden:
    periods that are left out of the usual course.
    """
    numbers = (np.arange(sums.size) + first) // _POINT
    days, times = numbers // _POINTS, numbers % _POINTS
    shown = weights.astype(float)
    shown[hidden] = 0.0
    cells = (days - days[0]) * _POINTS + times
    size = (int(days[-1] - days[0]) + 1) * _POINTS
    number = np.bincount(cells, shown, size)
    seen = number >= _ENOUGH
    grid = np.where(seen, np.bincount(cells, np.where(shown > 0, sums, 0.0), size) / np.maximum(number, 1e-9), np.nan)
    grid = grid.reshape(-1, _POINTS)
    grid = grid[np.isfinite(grid).sum(axis=1) >= _POINTS // 2]
    course = np.zeros(_POINTS)
    if len(grid) >= _DAYS:
        with warnings.catch_warnings():
            # A time of the day may have no requests at all.
            warnings.simplefilter("ignore", RuntimeWarning)
            grid = grid - np.nanmedian(grid, axis=1)[:, None]
            others = np.stack([_curve(np.delete(grid, place, axis=0)) for place in range(len(grid))])
            if np.nanmedian((grid - others) ** 2) < _EXPLAINED * np.nanmedian(grid**2):
                course = _curve(grid)
    return course[times]


# Periods of a point of the course, points of a day; requests of a point that count; days that make a course, and the
# share of the variance that is left where it explains the values.
_POINT = 1800 // STEP
_POINTS = 86400 // (_POINT * STEP)
_ENOUGH, _DAYS, _EXPLAINED = 5, 2, 0.6


def _curve(grid: Array) -> Array:
    """Return the median of the days for each time, averaged over an hour and a half."""
    medians = np.nan_to_num(np.nanmedian(grid, axis=0))
    return smoothed(np.concatenate([medians[-1:], medians, medians[:1]]), 3)[1:-1]


def share_bend(bad: Array, total: Array, usual: float) -> tuple[int, float]:
    """Return the period from which a share grows from its usual value, and the logarithm of how much likelier that is
    than a step. All bends and levels count, not only the likeliest.
    """
    width = max(bad.size // 150, 1)
    blocks = np.arange(bad.size) // width
    seen, requests = np.bincount(blocks, bad), np.bincount(blocks, total)
    length = seen.size
    bends = np.arange(max(length - 2, 1))
    ages = _ages(length, bends)
    end = slice(-max(length // 6, 1), None)
    last = max(float(seen[end].sum() / max(requests[end].sum(), 1.0)), usual * 1.5)
    mean = np.array([max(seen[bend:].sum() / max(requests[bend:].sum(), 1.0), usual * 1.2) for bend in bends])
    growths, steps = [], []
    for final in _FINALS:
        excess = max(final * last - usual, 0.0)
        growths += [
            np.log(prior) + _poisson(seen, requests * (usual + excess * course)) for prior, course in _courses(ages)
        ]
        level = np.where(ages > 0, np.maximum(final * mean, usual)[:, None], usual)
        steps.append(_poisson(seen, requests * level))
    lines = np.stack(growths, axis=1)
    return int(bends[_quantile(_mass(lines), _LATE)]) * width, _evidence(lines) - _evidence(np.stack(steps, axis=1))


# Shares at the end of a growth that are tried, as multiples of the last sixth's.
_FINALS = (0.7, 0.85, 1.0, 1.15, 1.3, 1.5)
# Likewise for failures: a stray one long before a growth makes all bends in between possible.
_LATE = 0.7


def volume_bend(seen: Array, expected: Array, start: int, reach: int) -> tuple[int, float]:
    """Return the point from which a count grows to its end, and how much likelier (logarithm) that is than a step.

    start: point at which the growth is plain; reach: points before it that are tried.
    """
    usual = expected + 0.2
    length = seen.size
    begin = max(start - reach, 0)
    bends = np.arange(begin, max(start + (length - start) // 3, start + 1))
    ages = _ages(length, bends)
    growths = []
    for multiple in _MULTIPLES:
        growths.append(np.log(_EXPONENTIAL) + _poisson(seen, usual * multiple**ages))
        growths += [
            np.log(prior) + _poisson(seen, usual * (1 + (multiple - 1) * course)) for prior, course in _courses(ages)
        ]
    lines = np.stack(growths, axis=1)
    places = np.arange(begin, length - 1)
    factors = np.array([max(float(seen[place:].sum() / usual[place:].sum()), 1.0) for place in places])
    steps = _poisson(seen, usual * np.where(_ages(length, places) > 0, factors[:, None], 1.0))
    return int(bends[_quantile(_mass(lines), _MIDDLE)]), float(lines.max() - steps.max())


def _ages(length: int, bends: Array) -> Array:
    """Return the share of the time since each bend that has passed, by bend and place; 0 before it."""
    passed = np.clip(np.arange(length)[None, :] - bends[:, None], 0, None)
    return np.asarray(passed / np.maximum(length - bends, 1)[:, None])


def _courses(ages: Array) -> Iterator[tuple[float, Array]]:
    """Yield the weight and the course, from 0 to 1, of every growth that is not exponential."""
    yield _STRAIGHT, ages
    yield _ACCELERATING, ages**2
    for reached in _REACHED:
        yield _LEVELLING / len(_REACHED), np.minimum(ages / reached, 1.0)


def _logarithms(ages: Array) -> Iterator[tuple[float, Array, bool]]:
    """Yield the weight and the logarithm of each growth, and whether its size is free."""
    yield _EXPONENTIAL, ages, True
    for prior, course in _courses(ages):
        for multiple in _MULTIPLES:
            yield prior / len(_MULTIPLES), np.log1p((multiple - 1) * course), False


def _squared_error(values: Array, weights: Array, shapes: Array, scaled: bool) -> tuple[Array, Array]:
    """Return the squared error of each row of shapes over a level, and the factors. scaled: the factor is fitted."""
    total = weights.sum()
    centred = values - (weights * values).sum() / total
    own = float((weights * centred**2).sum())
    means = shapes @ weights / total
    common = shapes @ (weights * centred)
    spread = np.maximum((shapes * shapes) @ weights - total * means**2, 1e-12)
    factors = np.maximum(common / spread, 0.0) if scaled else np.ones(len(shapes))
    return own - 2 * factors * common + factors**2 * spread, factors


def _step_error(values: Array, weights: Array) -> float:
    """Return the squared error of the best step."""
    total = weights.sum()
    centred = values - (weights * values).sum() / total
    before, sums = np.cumsum(weights)[:-1], np.cumsum(weights * centred)[:-1]
    after = total - before
    inside = (before > 0) & (after > 0)
    gained = sums[inside] ** 2 * (1 / before[inside] + 1 / after[inside])
    return float((weights * centred**2).sum()) - float(gained.max(initial=0.0))


def _poisson(seen: Array, rates: Array) -> Array:
    """Return the log likelihood of counts for every row of rates; no count is expected where a rate is 0."""
    safe = np.maximum(rates, 1e-12)
    return np.asarray(np.log(safe) @ seen - rates.sum(axis=1))


def _mass(fits: Array) -> Array:
    """Return the likelihood of each bend, in proportion. fits: log likelihoods, of bends by courses."""
    return np.asarray(np.exp(fits - fits.max()).sum(axis=1))


def _quantile(mass: Array, share: float) -> int:
    """Return the place up to which this share of a mass lies.

    The likeliest bend would be just before the first visible event, which is too late.
    """
    return int(np.searchsorted(np.cumsum(mass), share * mass.sum()))


def _evidence(fits: Array) -> float:
    """Return the logarithm of the mean of likelihoods, given as logarithms."""
    highest = fits.max()
    return float(highest + np.log(np.exp(fits - highest).mean()))

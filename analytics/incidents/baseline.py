"""The usual range of a count at a time of the day, from the same time of the other days.

The other days decide: a nightly batch comes every night, and the hour around it is looked at too, because local clocks
change. The only day of a weekend, and the only working day, are compared with the level that they have as a whole.
"""

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from analytics.incidents.statistics import Array, Interval, smoothed

_DAY = 86400
# Seconds before and after a time of the day that count as the same time, and over which counts are averaged.
_AROUND = 4500
_SMOOTH = 1800


@dataclass(frozen=True, slots=True)
class Usual:
    """Lowest, typical and highest usual count of every row and period; NaN without another day.

    typical: the median of the other days, at least that of the other days of the same kind if there are enough.
    """

    low: Array
    typical: Array
    high: Array


def usual_range(counts: Array, first: int, step: int, shift: float = 0.0) -> Usual:
    """Return the usual counts of every row and period.

    counts: series by period of `step` seconds, the first of which is number `first` since 1970. shift: seconds by which
    days begin after midnight UTC.
    """
    around = max(_AROUND // step, 1)
    length = counts.shape[1]
    level = smoothed(counts, max(_SMOOTH // step, 1))
    padded = np.pad(level, ((0, 0), (around, around)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * around + 1, axis=1)
    days = ((np.arange(length) + first) * step - shift) // _DAY
    weekend = np.array([datetime.fromtimestamp(int(day) * _DAY, UTC).weekday() >= 5 for day in days])
    with warnings.catch_warnings():
        # Periods without another day have no usual count.
        warnings.simplefilter("ignore", RuntimeWarning)
        low = _lowest(windows.min(axis=2), weekend, step)
        high = np.nanmax(_other_days(windows.max(axis=2), step), axis=0)
        typical = _typical(level, weekend, step)
    for kind in (weekend, ~weekend):
        if np.unique(days[kind]).size == 1 and not kind.all():
            _adapt(level, low, high, typical, kind)
    return Usual(low, np.where(np.isnan(typical), high, typical), high)


def other_days(periods: int, step: int) -> list[int]:
    """Return the distances in periods to the same time of every other day, of any period among so many."""
    day = _DAY // step
    return [shift * day for shift in range(-(periods // day) - 1, periods // day + 2) if shift]


def most_of_other_days(counts: Array, span: Interval, step: int) -> float:
    """Return the most that as long a time has at about the same time of another day: a batch of some minutes is higher
    than its average over half an hour. 0 without another day.
    """
    length, around = span.end - span.start, _AROUND // step
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    of_length = sums[length:] - sums[:-length]
    starts = [span.start + shift for shift in other_days(counts.size, step)]
    near = (of_length[max(start - around, 0) : max(start + around + 1, 0)] for start in starts)
    return max((float(each.max()) for each in near if each.size), default=0.0)


def _other_days(values: Array, step: int, alike: Array | None = None) -> Array:
    """Return the values of the same time of all other days: days by rows by periods. alike: kind of each period; other
    kinds are left out.
    """
    rows, length = values.shape
    per_day = _DAY // step
    shifts = [shift for shift in range(-(length // per_day) - 1, length // per_day + 2) if shift]
    result = np.full((len(shifts), rows, length), np.nan)
    for place, shift in enumerate(shifts):
        periods = np.arange(length) + shift * per_day
        known = (periods >= 0) & (periods < length)
        if alike is not None:
            known &= alike == alike[np.clip(periods, 0, length - 1)]
        result[place][:, known] = values[:, periods[known]]
    return result


def _lowest(values: Array, weekend: Array, step: int) -> Array:
    """Return the lowest value of the other days: of days of the same kind if there are two, else of all."""
    alike = _other_days(values, step, weekend)
    enough = np.isfinite(alike).sum(axis=0) >= 2
    return np.asarray(np.where(enough, np.nanmin(alike, axis=0), np.nanmin(_other_days(values, step), axis=0)))


def _typical(level: Array, weekend: Array, step: int) -> Array:
    others, alike = _other_days(level, step), _other_days(level, step, weekend)
    # One other day of the kind may be an exception itself; a working day has no other measure.
    enough = np.isfinite(alike).sum(axis=0) >= np.where(weekend, 2, 1)[None, :]
    general = np.nanmedian(others, axis=0)
    same = np.nanmedian(alike, axis=0)
    typical = np.where(enough, np.fmax(general, same), np.where(weekend[None, :], general, np.nan))
    return np.asarray(typical)


def _adapt(level: Array, low: Array, high: Array, typical: Array, kind: Array) -> None:
    """Move the usual range of the only day of its kind to that day's level."""
    below = np.nanmedian(level[:, kind] / np.maximum(low[:, kind], 1e-9), axis=1)
    above = np.nanmedian(level[:, kind] / np.maximum(high[:, kind], 1e-9), axis=1)
    low[:, kind] *= np.minimum(np.nan_to_num(below, nan=1.0), 1.0)[:, None]
    factor = np.maximum(np.nan_to_num(above, nan=1.0), 1.0)[:, None]
    high[:, kind] *= factor
    typical[:, kind] = np.fmax(typical[:, kind], high[:, kind])

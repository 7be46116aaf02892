"""The usual range of a count at a time of the day, from the same time of the other days.

The other days decide: a nightly batch comes every night, and the hour around it is looked at too, because local clocks
change. A quiet weekend is usual if another day of the weekend, or the weekend's level as a whole, is as quiet.
"""

from datetime import UTC, datetime

import numpy as np

from analytics.incidents.statistics import Array, smoothed

_DAY = 86400


def usual_range(counts: Array, first: int, step: int) -> tuple[Array, Array]:
    """Return the lowest and the highest usual count of every row and period; NaN without another day.

    counts: series by period of `step` seconds, the first of which is number `first` since 1970.
    """
    per_day, around = _DAY // step, max(4500 // step, 1)
    rows, length = counts.shape
    level = smoothed(counts, max(1800 // step, 1))
    padded = np.pad(level, ((0, 0), (around, around)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * around + 1, axis=1)
    low, high = windows.min(axis=2), windows.max(axis=2)
    lowest, highest = np.full((rows, length), np.inf), np.full((rows, length), -np.inf)
    days = -(-length // per_day)
    for shift in range(-days + 1, days):
        if shift == 0:
            continue
        places = np.arange(length) + shift * per_day
        known = (places >= 0) & (places < length)
        lowest[:, known] = np.minimum(lowest[:, known], low[:, places[known]])
        highest[:, known] = np.maximum(highest[:, known], high[:, places[known]])
    lowest[~np.isfinite(lowest)] = np.nan
    highest[~np.isfinite(highest)] = np.nan
    return _for_weekends(level, lowest, first, step), highest


def _for_weekends(level: Array, lowest: Array, first: int, step: int) -> Array:
    """Lower the usual range of the only day of a weekend to that day's level, and that of the only weekend."""
    days = (np.arange(level.shape[1]) + first) * step // _DAY
    weekend = np.array([datetime.fromtimestamp(int(day) * _DAY, UTC).weekday() >= 5 for day in days])
    if not weekend.any() or weekend.all() or np.unique(days[weekend]).size > 1:
        return lowest
    ratio = level[:, weekend] / np.maximum(lowest[:, weekend], 1e-9)
    factor = np.minimum(np.nanmedian(np.where(np.isfinite(ratio), ratio, np.nan), axis=1), 1.0)
    result = lowest.copy()
    result[:, weekend] *= np.nan_to_num(factor, nan=1.0)[:, None]
    return result

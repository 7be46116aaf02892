"""Silences that are a topic's own weekend: a market that closes on Friday evening, an office."""

from datetime import UTC, datetime

import numpy as np

from analytics.incidents.statistics import Array, Interval

_DAY = 86400
_WEEK = 7 * _DAY
# Longest weekend, from Friday evening to Monday morning; least part of Saturday and Sunday in UTC, as other zones'
# weekends begin earlier or later.
_LONGEST, _COVERED = 2.75 * _DAY, 0.75 * 2 * _DAY


def is_only_weekend(counts: Array, first: int, step: int, span: Interval) -> bool:
    """Return whether a span without messages is part of the only weekend of the records: another one is the better
    measure.

    counts: series by period of `step` seconds, the first of which is number `first` since 1970.
    """
    # The first and the last period may have messages of the time before and after.
    if counts[span.start + 1 : span.end - 1].any():
        return False
    busy = np.flatnonzero(counts)
    before, after = busy[busy <= span.start], busy[busy >= span.end - 1]
    # Nobody knows whether a silence that goes on ends with the weekend.
    if not before.size or not after.size:
        return False
    start, end = int(before[-1]), int(after[0]) + 1
    if (end - start) * step > _LONGEST or _has_other(counts.size, step, (start + end) // 2):
        return False
    return _of_weekend((first + start) * step, (first + end) * step) >= _COVERED


def _has_other(periods: int, step: int, middle: int) -> bool:
    """Return whether the same time of the week before or after lies within the records."""
    week = _WEEK // step
    return middle >= week or middle + week < periods


def _of_weekend(start: int, end: int) -> int:
    """Return the seconds of a span of a few days that are of one Saturday and Sunday."""
    weekday = datetime.fromtimestamp((start + end) / 2, UTC).weekday()
    # On Monday and Tuesday the last weekend is the nearest one.
    saturday = ((start + end) // 2 // _DAY + (5 - weekday if weekday > 1 else -2 - weekday)) * _DAY
    return min(end, saturday + 2 * _DAY) - max(start, saturday)

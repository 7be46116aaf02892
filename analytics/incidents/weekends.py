"""Silences that are a topic's own weekend or holiday: a market that closes on Friday evening, an office."""

from datetime import UTC, datetime

import numpy as np

from analytics.incidents.statistics import Array, smoothed

_DAY = 86400
_WEEK = 7 * _DAY
# Longest weekend, from Friday evening to Monday morning; least part of Saturday and Sunday in UTC, as other zones'
# weekends begin earlier or later.
_LONGEST, _COVERED = 2.75 * _DAY, 0.75 * 2 * _DAY
# Least part of a weekend in which only one day of it is off; shortest night, and how much earlier or later it is.
_DAY_OFF, _NIGHT, _ABOUT = _DAY, 10800, 3600


def closed_weekend(counts: Array, first: int, step: int) -> tuple[int, int] | None:
    """Return start and end of the silence that covers the only weekend of the records, if there is one: another weekend
    is the better measure. It contains the last period with messages before and the first one after.

    counts: series by period of `step` seconds, the first of which is number `first` since 1970.
    """
    # A silence that goes on is none: it may not end with the weekend.
    busy = np.flatnonzero(counts)
    for place in np.flatnonzero(np.diff(busy) > 1):
        start, end = int(busy[place]), int(busy[place + 1]) + 1
        if (end - start) * step > _LONGEST or _has_other(counts.size, step, (start + end) // 2):
            continue
        covered = _of_weekend((first + start) * step, (first + end) * step)
        if covered >= _COVERED or (covered >= _DAY_OFF and _is_of_nights(busy, step, start, end)):
            return start, end
    return None


def _is_of_nights(busy: Array, step: int, start: int, end: int) -> bool:
    """Return whether a silence begins and ends at times of the day at which other silences do: a shop that rests every
    night is closed on one day of the weekend. busy: periods with messages.
    """
    places = np.flatnonzero((np.diff(busy) * step >= _NIGHT) & (busy[:-1] != start))
    return bool(_is_daily(busy[places] - start, step) and _is_daily(busy[places + 1] + 1 - end, step))


def _is_daily(distances: Array, step: int) -> bool:
    """Return whether one of the distances in time, in periods, is about a number of days."""
    rests = (distances * step) % _DAY
    return bool((np.minimum(rests, _DAY - rests) <= _ABOUT).any())


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


# Seconds over which a night's level is averaged, and highest ratio of that level to the mean one.
_SMOOTH, _QUIET = 3600, 0.25
# Longest day off, from one quiet time to the next; least part of its usual messages with which the time before or after
# the plain drop counts, and highest share of the usual ones that comes on a day off.
_LONGEST_OFF, _REST, _LITTLE = 1.25 * _DAY, 0.1, 0.5


def is_day_off(counts: Array, typical: Array, drop: slice, step: int) -> bool:
    """Return whether a drop is a holiday: few messages come from one night of the topic, in which it rests anyway, to
    the next, in the hours before and after the plain drop too. What fails begins or ends by day.

    typical: usual counts, NaN where they are unknown.
    """
    usual = smoothed(np.nan_to_num(typical), _SMOOTH // step)
    quiet = np.flatnonzero(usual <= _QUIET * usual.mean())
    before, after = quiet[quiet <= drop.start], quiet[quiet >= drop.stop]
    if not before.size or not after.size or (after[0] - before[-1]) * step > _LONGEST_OFF:
        return False
    parts = (slice(before[-1], drop.start), slice(drop.start, drop.stop), slice(drop.stop, after[0] + 1))
    seen, due = (np.array([float(np.nan_to_num(series)[part].sum()) for part in parts]) for series in (counts, typical))
    large = due >= _REST * due.sum()
    return bool((seen <= _LITTLE * due)[large].all())

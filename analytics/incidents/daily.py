"""Deviations at the same time of most days, which are no incidents: requests of a busy hour are slower, and a group
that works by day rests at night.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analytics.incidents.baseline import other_days
from analytics.incidents.statistics import Array, smoothed

# Seconds of an hour, by which local clocks change, and over which shares are averaged.
_HOUR, _SMOOTH = 3600, 1800
# Least part of a span for which other days give the usual share.
_KNOWN = 0.5
# Slow: most requests, as a multiple of those that the course explains, and the highest share in quiet hours, as a part
# of the own one. Rest: highest share more than the course's, and the lowest share in hours of work.
_EXPLAINED, _QUIET = 2.0, 0.3
_RESTS, _WORKS = 0.15, 0.6


@dataclass(frozen=True, slots=True)
class Course:
    """A part of a whole, both counts by period of `step` seconds. least: count below which an hour has no share."""

    part: Array
    whole: Array
    step: int
    least: float

    def is_busy(self, start: int, end: int) -> bool:
        """Return whether a large share in a span is that of the time of the day, and smaller at other times."""
        own = self._share(start, end)
        usual = float(np.fmax(self._usual(start, end, max), self._nearby(start, end)))
        return own <= _EXPLAINED * usual and self._of_hours(0.25) <= _QUIET * own

    def rests(self, start: int, end: int) -> bool:
        """Return whether a small share in a span is that of the time of the day, and larger at other times."""
        own, usual = self._share(start, end), self._usual(start, end, min)
        return usual <= own + _RESTS and self._of_hours(0.75) >= _WORKS

    def _nearby(self, start: int, end: int) -> float:
        """Return the median over the other days of the largest share of as long a time within an hour around; NaN
        without one, and for longer spans. A job of some minutes has a larger share than the half hour around it.
        """
        if (end - start) * self.step > _HOUR:
            return np.nan
        parts, wholes = (np.convolve(series, np.ones(end - start), "valid") for series in (self.part, self.whole))
        shares = np.where(wholes >= self.least / 2, parts / np.maximum(wholes, 1e-9), np.nan)
        hour = _HOUR // self.step
        days = [start + shift for shift in other_days(shares.size, self.step)]
        near = [shares[max(place - hour, 0) : max(place + hour + 1, 0)] for place in days]
        most = [float(np.nanmax(each)) for each in near if np.isfinite(each).any()]
        return float(np.median(most)) if most else np.nan

    def _share(self, start: int, end: int) -> float:
        return float(self.part[start:end].sum() / max(self.whole[start:end].sum(), 1e-9))

    def _usual(self, start: int, end: int, best: Callable[[list[float]], float]) -> float:
        """Return the share that the other days' same time makes likely, an hour before and after it too; NaN if no day
        is known for most of the span. best: the likelier of the shares that the clock of one day allows.
        """
        # For each day: where clocks change between the other days, no shift is that of most of them.
        clocks = [
            [self._mean(usual, start, end, place) for usual, place in zip(shares, places, strict=True)]
            for shares, places in zip(*self._others(start, end), strict=True)
        ]
        known = [[share for share in shares if np.isfinite(share)] for shares in clocks]
        own = [best(shares) for shares in known if shares]
        return float(np.median(own)) if own else np.nan

    def _others(self, start: int, end: int) -> tuple[Array, Array]:
        """Return the shares of a span's periods on other days, NaN where there are too few requests, and their places:
        by day; by clock, an hour before, at and after the time; by period.
        """
        width = max(_SMOOTH // self.step, 1)
        seen = smoothed(self.whole, width) * width
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(seen >= self.least / 2, smoothed(self.part, width) * width / seen, np.nan)
        shares[start:end] = np.nan
        hour = _HOUR // self.step
        days = other_days(shares.size, self.step)
        places = np.array([[np.arange(start, end) + clock + shift for clock in (-hour, 0, hour)] for shift in days])
        return _at(shares, places), places

    def _mean(self, usual: Array, start: int, end: int, places: Array) -> float:
        """Return the mean of usual shares over the requests of a span; if most are unknown, the share of all its
        requests at places of another day, as a quiet night has enough only together; NaN if these are too few too.
        """
        weights = self.whole[start:end] * np.isfinite(usual)
        if not weights.any() or weights.sum() < _KNOWN * self.whole[start:end].sum():
            return self._of_all(places[(places < start) | (places >= end)], end - start)
        return float((np.nan_to_num(usual) * weights).sum() / weights.sum())

    def _of_all(self, places: Array, periods: int) -> float:
        """Return the share of all requests at places; NaN if most are outside the records, or requests are too few."""
        inside = places[(places >= 0) & (places < self.part.size)]
        whole = self.whole[inside].sum()
        if inside.size < _KNOWN * periods or whole < self.least:
            return np.nan
        return float(self.part[inside].sum() / whole)

    def _of_hours(self, quantile: float) -> float:
        """Return a quantile of the hours' shares; NaN if no hour has enough requests."""
        hours = np.arange(self.part.size) // max(_HOUR // self.step, 1)
        parts, wholes = np.bincount(hours, self.part), np.bincount(hours, self.whole)
        told = wholes >= self.least
        return float(np.quantile(parts[told] / wholes[told], quantile)) if told.any() else np.nan


def _at(values: Array, places: Array) -> Array:
    """Return values at places; NaN outside."""
    inside = (places >= 0) & (places < values.size)
    return np.where(inside, values[np.clip(places, 0, values.size - 1)], np.nan)

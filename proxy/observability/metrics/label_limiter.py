"""Limit of the values of a label that clients choose: only the busiest have time series of their own."""

import math
from collections.abc import Mapping

# Label value of all traffic without a time series of its own.
OTHER = "__other__"
# Seconds after which former traffic counts half.
_HALF_LIFE = 600.0
# A new value must be this many times busier than the one that it replaces, or the two would alternate.
_MARGIN = 2.0


class LabelLimiter:
    """Selects at most `max_values` label values. A value is dropped after `idle` seconds without traffic."""

    def __init__(self, max_values: int, idle: float) -> None:
        self._max_values = max_values
        self._idle = idle
        self._scores: dict[str, float] = {}
        self._active_at: dict[str, float] = {}
        self._selected: set[str] = set()
        self._updated_at = -math.inf

    def label(self, value: str) -> str:
        """Return the value if it is selected or empty, else `OTHER`."""
        return value if not value or value in self._selected else OTHER

    def update(self, traffic: Mapping[str, float], now: float) -> set[str]:
        """Add the traffic by value since the last update and return the values that are no longer selected."""
        former = set(self._selected)
        self._decay(now)
        for value, amount in traffic.items():
            if amount > 0 and value and value != OTHER:
                self._scores[value] = self._scores.get(value, 0.0) + amount
                self._active_at[value] = now
        self._drop_idle(now)
        self._select()
        return former - self._selected

    def _decay(self, now: float) -> None:
        if now > self._updated_at > -math.inf:
            factor = 0.5 ** ((now - self._updated_at) / _HALF_LIFE)
            for value in self._scores:
                self._scores[value] *= factor
        self._updated_at = now

    def _drop_idle(self, now: float) -> None:
        for value in [value for value, active_at in self._active_at.items() if now - active_at > self._idle]:
            del self._active_at[value], self._scores[value]
            self._selected.discard(value)

    def _select(self) -> None:
        scores = self._scores
        candidates = sorted(scores.keys() - self._selected, key=lambda value: (-scores[value], value))
        room = max(self._max_values - len(self._selected), 0)
        self._selected.update(candidates[:room])
        if not self._max_values:
            return
        quietest = sorted(self._selected, key=lambda value: (scores[value], value))
        for candidate, replaced in zip(candidates[room:], quietest, strict=False):
            if scores[candidate] <= _MARGIN * scores[replaced]:
                break
            self._selected.remove(replaced)
            self._selected.add(candidate)

"""Which values of a label have series of their own, where clients choose them: the busiest, until they fall silent."""

import math
from collections.abc import Mapping

OTHER = "__other__"
# Seconds in which former traffic comes to count half.
_HALF_LIFE = 600.0
# A newcomer has to be this much busier than whom it replaces, or the two would take turns.
_MARGIN = 2.0


class Shown:
    """At most `most` values; one is dropped after `idle` seconds without traffic. All others are `OTHER`."""

    def __init__(self, most: int, idle: float) -> None:
        self._most = most
        self._idle = idle
        self._scores: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._shown: set[str] = set()
        self._noted = -math.inf

    def name(self, value: str) -> str:
        """What a value is shown as. That there is none is no value."""
        return value if not value or value in self._shown else OTHER

    def note(self, traffic: Mapping[str, float], now: float) -> set[str]:
        """Take in how much came of each value since the last time; returns those that are not shown any more."""
        former = set(self._shown)
        self._fade(now)
        for value, amount in traffic.items():
            if amount > 0 and value and value != OTHER:
                self._scores[value] = self._scores.get(value, 0.0) + amount
                self._seen[value] = now
        self._forget(now)
        self._admit()
        return former - self._shown

    def _fade(self, now: float) -> None:
        if now > self._noted > -math.inf:
            left = 0.5 ** ((now - self._noted) / _HALF_LIFE)
            for value in self._scores:
                self._scores[value] *= left
        self._noted = now

    def _forget(self, now: float) -> None:
        for value in [value for value, seen in self._seen.items() if now - seen > self._idle]:
            del self._seen[value], self._scores[value]
            self._shown.discard(value)

    def _admit(self) -> None:
        scores = self._scores
        newcomers = sorted(scores.keys() - self._shown, key=lambda value: (-scores[value], value))
        room = max(self._most - len(self._shown), 0)
        self._shown.update(newcomers[:room])
        if not self._most:
            return
        quiet = sorted(self._shown, key=lambda value: (scores[value], value))
        for newcomer, leaver in zip(newcomers[room:], quiet, strict=False):
            if scores[newcomer] <= _MARGIN * scores[leaver]:
                break
            self._shown.remove(leaver)
            self._shown.add(newcomer)

"""Sampling of requests: the share of each topic's requests that is recorded."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from proxy.core.events import Observation

# Cached topics. Clients choose the names, so that the number has to be bounded.
_MAX_TOPICS = 10_000
_RECORD_ALL = ("", 1.0)


class Sampling:
    """Sampling rules: topic patterns (`*`, `?`, `[…]`) and shares from 0 to 1. The first matching rule applies.

    A request without a topic matches as an empty name. Failed requests are always recorded, because they are rare and
    of interest. draw: returns a random number in [0, 1). left_out: requests without a record, by pattern.
    """

    def __init__(self, rules: Sequence[tuple[str, float]], draw: Callable[[], float] = random.random) -> None:
        self.left_out: Counter[str] = Counter()
        self._rules = rules
        self._draw = draw
        self._by_topic: dict[str, tuple[str, float]] = {}

    def weight(self, observation: Observation) -> float | None:
        """Return the number of requests that the record represents; None: do not record the request."""
        pattern, share = self._rule(observation.topic or "") if observation.ok else _RECORD_ALL
        if share >= 1.0:
            return 1.0
        if self._draw() < share:
            return 1.0 / share
        self.left_out[pattern] += 1
        return None

    def _rule(self, topic: str) -> tuple[str, float]:
        rule = self._by_topic.get(topic)
        if rule is None:
            if len(self._by_topic) >= _MAX_TOPICS:
                self._by_topic.clear()
            rule = next((rule for rule in self._rules if fnmatchcase(topic, rule[0])), _RECORD_ALL)
            self._by_topic[topic] = rule
        return rule

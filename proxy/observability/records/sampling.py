"""Which requests leave a record: a share of each topic's, by rules."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from proxy.core.events import Observation

# Topics are remembered as clients name them: whoever makes names up must not fill the memory.
_MAX_TOPICS = 10_000
_ALL = ("", 1.0)


class Sampling:
    """Rules by topic, each a pattern (`*`, `?`, `[…]`) and a share (0 to 1); the first that fits counts.

    A request without a topic fits what an empty name fits. What failed is always recorded: it is rare, and looked for.
    """

    def __init__(self, rules: Sequence[tuple[str, float]], chance: Callable[[], float] = random.random) -> None:
        self.left_out: Counter[str] = Counter()
        self._rules = rules
        self._chance = chance
        self._known: dict[str, tuple[str, float]] = {}

    def weight(self, seen: Observation) -> float | None:
        """For how many requests the record of this one is to stand; None: it is to leave none."""
        pattern, share = self._rule(seen.topic or "") if seen.ok else _ALL
        if share >= 1.0:
            return 1.0
        if self._chance() < share:
            return 1.0 / share
        self.left_out[pattern] += 1
        return None

    def _rule(self, topic: str) -> tuple[str, float]:
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= _MAX_TOPICS:
                self._known.clear()
            found = next((rule for rule in self._rules if fnmatchcase(topic, rule[0])), _ALL)
            self._known[topic] = found
        return found

"""Groups whose members wait with a POP or a NOTIFICATION, by the topics whose messages may wake them."""

from collections import Counter
from collections.abc import Collection
from functools import lru_cache

from remoting.names import pop_retry_topic

# Topic, group, queue id.
PopKey = tuple[str, str, int]

_NO_GROUPS: dict[tuple[str, str], None] = {}


class Poppers:
    """Pairs of topic and group with waiting requests; the retry topics of a pair lead to it, too.

    A pair is forgotten with its last request: else each group that ever waited would make each message dearer.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._pairs: dict[str, dict[tuple[str, str], None]] = {}

    def add(self, key: PopKey) -> None:
        """Count a request that waits."""
        topic, group, _ = key
        pair = topic, group
        self._counts[pair] += 1
        if self._counts[pair] == 1:
            for name in _topics(topic, group):
                self._pairs.setdefault(name, {})[pair] = None

    def remove(self, key: PopKey) -> None:
        """Forget a request that waited."""
        topic, group, _ = key
        pair = topic, group
        self._counts[pair] -= 1
        if self._counts[pair]:
            return
        del self._counts[pair]
        for name in _topics(topic, group):
            del self._pairs[name][pair]
            if not self._pairs[name]:
                del self._pairs[name]

    def of(self, topic: str) -> Collection[tuple[str, str]]:
        """Return the pairs of topic and group whose requests a message of a topic may wake."""
        return self._pairs.get(topic, _NO_GROUPS)


# Cached, because a waiting request enters and leaves with each message.
@lru_cache(maxsize=1024)
def _topics(topic: str, group: str) -> tuple[str, str, str]:
    return topic, pop_retry_topic(topic, group, False), pop_retry_topic(topic, group, True)

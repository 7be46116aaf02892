"""The messages that were appended to a queue since its waiting polls were looked at."""

from collections.abc import Mapping

from proxy.embedded.broker.filters import Filter, TagFilter
from proxy.embedded.broker.long_polls import LongPoll
from proxy.embedded.store.queue import tag_code
from remoting import properties
from remoting.messages import StoredMessage

# Maximum numbers of messages that other filters than those by tag are asked about, and of different tags. After more,
# polls are served without a test, which reads the queue.
_MAX_TESTED = 16
_MAX_TAGS = 4096


class Appended:
    """Messages of one queue, as far as they decide which polls to serve. All are added before the first `fits`."""

    __slots__ = ("_codes", "_count", "_last_offset", "_pairs", "_results", "_texts")

    def __init__(self) -> None:
        self._count = 0
        self._last_offset = 0
        self._codes: set[int] = set()
        # The properties of the first messages, and the filters' results for them.
        self._texts: list[str] = []
        self._pairs: list[Mapping[str, str]] | None = None
        self._results: dict[Filter, bool] = {}

    def add(self, message: StoredMessage) -> None:
        """Add a message."""
        self._count += 1
        self._last_offset = message.queue_offset
        if len(self._codes) < _MAX_TAGS:
            self._codes.add(tag_code(message.get(properties.TAGS)))
        if len(self._texts) < _MAX_TESTED:
            self._texts.append(message.properties)

    def fits(self, poll: LongPoll) -> bool:
        """Return whether a poll is to be served: there is a message that it waits for, or perhaps."""
        if poll.offset > self._last_offset:
            return False
        if poll.filter is None:
            return True
        if isinstance(poll.filter, TagFilter):
            return len(self._codes) >= _MAX_TAGS or not self._codes.isdisjoint(poll.filter.codes)
        return self._count > len(self._texts) or self._matches(poll.filter)

    def _matches(self, message_filter: Filter) -> bool:
        # The members of a group have equal filters.
        result = self._results.get(message_filter)
        if result is None:
            if self._pairs is None:
                self._pairs = list(map(properties.decode, self._texts))
            result = self._results[message_filter] = any(map(message_filter.matches, self._pairs))
        return result

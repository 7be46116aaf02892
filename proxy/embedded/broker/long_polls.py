"""Long polls: requests that wait for a message. Sans-io.

The key of a poll identifies the messages that it waits for: (topic, queue id) for a pull, (topic, group, queue id) for
a pop.
"""

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.embedded.broker.filters import Filter, SqlFilter
from proxy.embedded.broker.request import Request
from proxy.embedded.broker.source_share import Source, source_of_client
from proxy.embedded.broker.work_budget import WorkBudget
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.counts import count_down
from remoting.outcomes import Reply

_log = logging.getLogger("gantry.embedded")

_Key = TypeVar("_Key", bound=Hashable)

# Minimum number of outdated deadlines before the deadlines are rebuilt.
_MIN_OUTDATED = 1024


@dataclass(eq=False, slots=True)
class LongPoll:
    """A request that waits until a deadline (ms) for a message that passes its filter (None: any).

    empty_code: the response code if no message arrives. offset: for a pull, the queue offset to continue at.
    """

    request: Request
    deadline: int
    reply: Reply
    empty_code: ResponseCode
    filter: Filter | None = None
    offset: int = 0

    @property
    def source(self) -> Source:
        return source_of_client(self.request.channel)

    @property
    def abandoned(self) -> bool:
        """Whether its response is no longer needed."""
        channel = self.request.channel
        return self.reply.done() or (channel is not None and channel.closed)

    def end(self) -> None:
        """Complete the reply without a message; the client is gone, but its request still counts as in flight."""
        if not self.reply.done():
            self.reply.set_result(commands.response(self.empty_code))


def _ignore(_: object) -> None:
    """Nothing depends on the keys."""


class LongPolls(Generic[_Key]):
    """Long polls by key, the oldest first; `total` is their number.

    added, removed: called with the key of each poll.
    """

    def __init__(self, added: Callable[[_Key], object] = _ignore, removed: Callable[[_Key], object] = _ignore) -> None:
        self.total = 0
        self._added, self._removed = added, removed
        self._polls: dict[_Key, dict[int, LongPoll]] = {}
        # The number of polls by source address, and by key and source address.
        self._of_sources: Counter[Source] = Counter()
        self._of_key: Counter[tuple[_Key, Source]] = Counter()
        # Deadline, number and key; those of ended polls remain for a while.
        self._deadlines: list[tuple[int, int, _Key]] = []
        self._numbers = itertools.count()

    def add(self, key: _Key, poll: LongPoll) -> None:
        """Add a poll."""
        number = next(self._numbers)
        self._polls.setdefault(key, {})[number] = poll
        heapq.heappush(self._deadlines, (poll.deadline, number, key))
        self.total += 1
        source = poll.source
        self._of_sources[source] += 1
        self._of_key[key, source] += 1
        self._added(key)
        if len(self._deadlines) > 2 * self.total + _MIN_OUTDATED:
            # Most are of polls that were woken.
            self._deadlines = [
                (poll.deadline, number, key) for key, polls in self._polls.items() for number, poll in polls.items()
            ]
            heapq.heapify(self._deadlines)

    def count(self, key: _Key) -> int:
        """Return the number of polls with a key."""
        return len(self._polls.get(key, ()))

    def count_of(self, source: Source) -> int:
        """Return the number of polls of a source address."""
        return self._of_sources.get(source, 0)

    def count_of_key(self, key: _Key, source: Source) -> int:
        """Return the number of polls of a source address with a key."""
        return self._of_key.get((key, source), 0)

    def take(self, key: _Key, fits: Callable[[LongPoll], bool]) -> Iterator[LongPoll | None]:
        """Look at one poll with a key after the other: remove and yield it if it fits, else yield None.

        The oldest comes first, of those whose filter costs little, and then of the others. The caller may pause or end
        the iteration; polls that are added meanwhile are not looked at.
        """
        waiting = list(self._polls.get(key, {}).items())
        for costly in (False, True):
            for number, poll in waiting:
                if isinstance(poll.filter, SqlFilter) is costly and number in self._polls.get(key, {}):
                    fit = poll.abandoned or _fits(poll, fits)
                    yield self._remove(key, number) if fit else None

    def due(self, now: int, budget: WorkBudget) -> Iterator[LongPoll]:
        """Remove and yield the polls whose deadline is reached, until the budget is exhausted."""
        while self._deadlines and self._deadlines[0][0] <= now and not budget.exhausted:
            _, number, key = heapq.heappop(self._deadlines)
            budget.use()
            if number in self._polls.get(key, {}) and (poll := self._remove(key, number)) is not None:
                yield poll

    def _remove(self, key: _Key, number: int) -> LongPoll | None:
        """Remove and return a poll; end it and return None if it is abandoned."""
        polls = self._polls[key]
        poll = polls.pop(number)
        if not polls:
            del self._polls[key]
        self.total -= 1
        source = poll.source
        count_down(self._of_sources, source)
        count_down(self._of_key, (key, source))
        self._removed(key)
        if poll.abandoned:
            poll.end()
            return None
        return poll


def _fits(poll: LongPoll, fits: Callable[[LongPoll], bool]) -> bool:
    """Return whether a poll fits; one whose filter fails is served, so that its consumer gets the error."""
    try:
        return fits(poll)
    except Exception:
        _log.exception("the filter of a long poll failed")
        return True

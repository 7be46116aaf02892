"""Holds: requests that wait for a message. Sans-io; whoever wakes one answers it.

Keys are what a request waits for: (topic, queue id) of a pull, (topic, group, queue id) of a pop.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.embedded.broker.filters import Filter
from proxy.embedded.broker.request import Reply, Request

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(eq=False, slots=True)
class Held:
    """A request that waits until a time (ms), for a message that its filter wants (None: any).

    offset: for a pull, where in the queue it wants to go on.
    """

    request: Request
    until: int
    reply: Reply
    wanted: Filter | None = None
    offset: int = 0

    @property
    def gone(self) -> bool:
        """Whether nobody wants its answer any more."""
        channel = self.request.channel
        return self.reply.done() or (channel is not None and channel.closed)


class Holds(Generic[_Key]):
    """Waiting requests by key, the oldest first; `total` is how many there are."""

    def __init__(self) -> None:
        self.total = 0
        self._waiting: dict[_Key, dict[int, Held]] = {}
        # Of one that has been woken, only its number stays here until its time.
        self._deadlines: list[tuple[int, int, _Key]] = []
        self._numbers = itertools.count()

    def add(self, key: _Key, held: Held) -> None:
        """Let a request wait."""
        number = next(self._numbers)
        self._waiting.setdefault(key, {})[number] = held
        heapq.heappush(self._deadlines, (held.until, number, key))
        self.total += 1

    def count(self, key: _Key) -> int:
        """How many wait for this."""
        return len(self._waiting.get(key, ()))

    def take(self, key: _Key, fits: Callable[[Held], bool]) -> list[Held]:
        """All that wait for this and fit; they wait no longer."""
        waiting = self._waiting.get(key, {})
        found = [number for number, held in waiting.items() if held.gone or fits(held)]
        return [held for held in [self._end(key, number) for number in found] if not held.gone]

    def take_one(self, key: _Key, fits: Callable[[Held], bool]) -> Held | None:
        """The one that has waited longest of those that fit."""
        for number, held in list(self._waiting.get(key, {}).items()):
            if held.gone:
                self._end(key, number)
            elif fits(held):
                return self._end(key, number)
        return None

    def due(self, now: int) -> list[Held]:
        """Those whose time is up."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, key = heapq.heappop(self._deadlines)
            if number in self._waiting.get(key, {}):
                held = self._end(key, number)
                if not held.gone:
                    found.append(held)
        return found

    def _end(self, key: _Key, number: int) -> Held:
        waiting = self._waiting[key]
        held = waiting.pop(number)
        if not waiting:
            del self._waiting[key]
        self.total -= 1
        return held

"""Holds: requests that wait for a message. Sans-io; whoever wakes one answers it.

Keys are what a request waits for: (topic, queue id) of a pull, (topic, group, queue id) of a pop.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
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
    ended: bool = False

    @property
    def idle(self) -> bool:
        """Whether nobody wants its answer any more."""
        channel = self.request.channel
        return self.ended or self.reply.done() or (channel is not None and channel.closed)


@dataclass(slots=True)
class Holds(Generic[_Key]):
    """Waiting requests by key, the oldest first."""

    _waiting: dict[_Key, dict[Held, None]] = field(default_factory=dict)
    _deadlines: list[tuple[int, int, _Key, Held]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    total: int = 0

    def add(self, key: _Key, held: Held) -> None:
        """Let a request wait."""
        self._waiting.setdefault(key, {})[held] = None
        heapq.heappush(self._deadlines, (held.until, next(self._numbers), key, held))
        self.total += 1

    def count(self, key: _Key) -> int:
        """How many wait for this."""
        return len(self._waiting.get(key, ()))

    def take(self, key: _Key, fits: Callable[[Held], bool]) -> list[Held]:
        """All that wait for this and fit; they wait no longer."""
        found = [held for held in self._waiting.get(key, ()) if held.idle or fits(held)]
        for held in found:
            self._end(key, held)
        return [held for held in found if not _gone(held)]

    def take_one(self, key: _Key, fits: Callable[[Held], bool]) -> Held | None:
        """The one that has waited longest of those that fit."""
        for held in list(self._waiting.get(key, ())):
            if _gone(held):
                self._end(key, held)
            elif fits(held):
                self._end(key, held)
                return held
        return None

    def due(self, now: int) -> list[Held]:
        """Those whose time is up."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, key, held = heapq.heappop(self._deadlines)
            if not held.ended:
                self._end(key, held)
                if not _gone(held):
                    found.append(held)
        return found

    def all(self) -> list[Held]:
        """Everybody; nobody waits any more."""
        found = []
        for key, waiting in list(self._waiting.items()):
            for held in list(waiting):
                self._end(key, held)
                found.append(held)
        return found

    def _end(self, key: _Key, held: Held) -> None:
        waiting = self._waiting[key]
        del waiting[held]
        if not waiting:
            del self._waiting[key]
        held.ended = True
        self.total -= 1


def _gone(held: Held) -> bool:
    channel = held.request.channel
    return held.reply.done() or (channel is not None and channel.closed)

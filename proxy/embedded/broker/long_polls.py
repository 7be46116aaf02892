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
from remoting import command as commands
from remoting.codes import ResponseCode

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(eq=False, slots=True)
class Held:
    """A request that waits until a time (ms), for a message that its filter wants (None: any).

    nothing: the response code that says that none came. offset: for a pull, where in the queue it wants to go on.
    """

    request: Request
    until: int
    reply: Reply
    nothing: ResponseCode
    wanted: Filter | None = None
    offset: int = 0

    @property
    def gone(self) -> bool:
        """Whether nobody wants its answer any more."""
        channel = self.request.channel
        return self.reply.done() or (channel is not None and channel.closed)

    def dismiss(self) -> None:
        """Let it end with nothing: the client has gone, but who counts what is under way has not."""
        if not self.reply.done():
            self.reply.set_result(commands.response(self.nothing))


class LongPolls(Generic[_Key]):
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
        return [held for number in found if (held := self._end(key, number)) is not None]

    def take_one(self, key: _Key, fits: Callable[[Held], bool]) -> Held | None:
        """The one that has waited longest of those that fit."""
        for number, held in list(self._waiting.get(key, {}).items()):
            if (held.gone or fits(held)) and (wanting := self._end(key, number)) is not None:
                return wanting
        return None

    def due(self, now: int) -> list[Held]:
        """Those whose time is up."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, key = heapq.heappop(self._deadlines)
            if number in self._waiting.get(key, {}) and (held := self._end(key, number)) is not None:
                found.append(held)
        return found

    def _end(self, key: _Key, number: int) -> Held | None:
        """One that waits no longer; None where nobody wants its answer any more."""
        waiting = self._waiting[key]
        held = waiting.pop(number)
        if not waiting:
            del self._waiting[key]
        self.total -= 1
        if held.gone:
            held.dismiss()
            return None
        return held

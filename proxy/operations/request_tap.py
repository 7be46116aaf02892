"""The tap: requests as they are answered, for whoever watches. While nobody does, the core does not know of it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.events import Observation, Observer, describe, identity

# Requests that wait for one watcher; more are dropped, and counted.
_MAX_WAITING = 1_000
# Seconds of silence after which a sign of life is sent, so that nobody in between gives the stream up.
SILENCE = 15.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which requests; None: any. ok: those that failed, or did not."""

    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    code: str | None = None
    protocol: str | None = None
    ok: bool | None = None

    def fits(self, seen: Observation) -> bool:
        """Whether a request is one of these."""
        return (
            (self.topic is None or self.topic == seen.topic)
            and (self.group is None or self.group == seen.group)
            and (self.code is None or self.code == seen.code)
            and (self.protocol is None or self.protocol == seen.protocol)
            and (self.ok is None or self.ok == seen.ok)
            and (self.client_id is None or self.client_id == identity(seen.channel).client_id)
        )


class Watcher:
    """One stream. Observations are never changed after they were made, so they are kept as they are."""

    __slots__ = ("_waiting", "_wake", "closed", "dropped", "untold", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.closed = False
        # All that were dropped, and of these how many it has not been told of.
        self.dropped = self.untold = 0
        self._waiting: deque[Observation] = deque()
        self._wake: asyncio.Future[None] | None = None

    def offer(self, seen: Observation) -> bool:
        """Take a request that fits; False where there is no room."""
        if not self.wanted.fits(seen):
            return True
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            self.untold += 1
            return False
        self._waiting.append(seen)
        self._rouse()
        return True

    def close(self) -> None:
        """The stream ends with what has come so far."""
        self.closed = True
        self._rouse()

    async def next(self) -> list[Observation]:
        """What has come since; nothing at the end, and after `SILENCE`."""
        if not self._waiting and not self.closed:
            self._wake = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._wake,), timeout=SILENCE)
        found, self._waiting = list(self._waiting), deque()
        return found

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class RequestTap:
    """All watchers of a replica, at most `most`. `observers` is the core's list."""

    def __init__(self, observers: list[Observer], most: int) -> None:
        self._observers = observers
        self._most = most
        self.watchers: set[Watcher] = set()
        # Requests that did not fit into somebody's queue.
        self.dropped = 0
        self._closed = False

    def open(self, wanted: Wanted) -> Watcher | None:
        """One more watcher; None: there are enough."""
        if self._closed or len(self.watchers) >= self._most:
            return None
        if not self.watchers:
            self._observers.append(self._observe)
        watcher = Watcher(wanted)
        self.watchers.add(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """A watcher has gone."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)
            if not self.watchers:
                self._observers.remove(self._observe)

    def close(self) -> None:
        """End all streams, and begin no more."""
        self._closed = True
        for watcher in self.watchers:
            watcher.close()

    def _observe(self, seen: Observation) -> None:
        for watcher in self.watchers:
            if not watcher.offer(seen):
                self.dropped += 1


async def events(watcher: Watcher) -> AsyncIterator[bytes]:
    """A watcher's stream as server-sent events: `request`, `dropped` with their number, comments in between."""
    yield b": watching\n\n"
    while True:
        found = await watcher.next()
        for seen in found:
            yield b"event: request\ndata: " + orjson.dumps(described(seen)) + b"\n\n"
        if watcher.untold:
            yield b'event: dropped\ndata: {"requests":%d}\n\n' % watcher.untold
            watcher.untold = 0
        if not found:
            if watcher.closed:
                return
            yield b": still here\n\n"


def described(seen: Observation) -> dict[str, Any]:
    """A request as watchers are told of it."""
    # Observations have the monotonic clock's time.
    at = time.time() - (time.monotonic() - seen.started)
    return {
        "time": round(at, 6),
        **describe(seen),
        "milliseconds": round(seen.seconds * 1000, 3),
        "broker_milliseconds": None if seen.broker_seconds is None else round(seen.broker_seconds * 1000, 3),
        "attempt": seen.attempt,
        "delay_ms": seen.delay_ms,
    }

"""The tap: a live stream of requests as they are answered. Without watchers, the core has no observer for it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from proxy.core.events import Observation, Observer, describe, identity
from proxy.operations.failures import Failure, FailureKind, OperationFailed

# Requests that wait for one watcher; more are dropped, and counted.
_MAX_WAITING = 1_000
# Seconds without an event after which a keep-alive is sent, so that intermediaries do not close the stream.
KEEP_ALIVE = 15.0


@dataclass(frozen=True, slots=True)
class TapFilter:
    """Which requests to stream; None: any."""

    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    code: str | None = None
    protocol: str | None = None
    ok: bool | None = None

    def matches(self, observation: Observation) -> bool:
        """Return whether a request passes the filter."""
        return (
            (self.topic is None or self.topic == observation.topic)
            and (self.group is None or self.group == observation.group)
            and (self.code is None or self.code == observation.code)
            and (self.protocol is None or self.protocol == observation.protocol)
            and (self.ok is None or self.ok == observation.ok)
            and (self.client_id is None or self.client_id == identity(observation.channel).client_id)
        )


class EventKind(StrEnum):
    """Kinds of events in a stream."""

    # The stream has begun.
    WATCHING = "watching"
    REQUEST = "request"
    # Requests were dropped because the watcher is too slow.
    DROPPED = "dropped"
    KEEP_ALIVE = "keep-alive"
    # A worker is missing from the stream; it has joined again.
    MISSING = "missing"
    JOINED = "joined"


class TapEvent(NamedTuple):
    """An event of a stream."""

    kind: EventKind
    data: dict[str, Any] = {}  # noqa: RUF012  # never changed


class Watcher:
    """One stream. Observations are immutable once created, so they are kept without a copy."""

    __slots__ = ("_waiting", "_wake", "closed", "dropped", "filter", "unreported")

    def __init__(self, tap_filter: TapFilter) -> None:
        self.filter = tap_filter
        self.closed = False
        # Dropped requests in total, and those that were not reported yet.
        self.dropped = self.unreported = 0
        self._waiting: deque[Observation] = deque()
        self._wake: asyncio.Future[None] | None = None

    def offer(self, observation: Observation) -> bool:
        """Queue a request that passes the filter; return False if the queue is full."""
        if not self.filter.matches(observation):
            return True
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            self.unreported += 1
            return False
        observation.complete()
        self._waiting.append(observation)
        self._notify()
        return True

    def close(self) -> None:
        """End the stream after the queued requests."""
        self.closed = True
        self._notify()

    async def next(self) -> list[Observation]:
        """Return the queued requests; none after `KEEP_ALIVE` seconds, and at the end."""
        if not self._waiting and not self.closed:
            self._wake = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._wake,), timeout=KEEP_ALIVE)
        queued, self._waiting = list(self._waiting), deque()
        return queued

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class RequestTap:
    """All watchers of a replica, at most `max_watchers`. `observers` is the core's list."""

    def __init__(self, observers: list[Observer], max_watchers: int) -> None:
        self._observers = observers
        self._max_watchers = max_watchers
        self.watchers: set[Watcher] = set()
        # Dropped requests of all watchers.
        self.dropped = 0
        self._closed = False

    def open(self, tap_filter: TapFilter) -> Watcher:
        """Add a watcher. Raises OperationFailed if there are too many."""
        if self._closed or len(self.watchers) >= self._max_watchers:
            detail = "the limit on streams (admin.streams) is reached"
            raise OperationFailed(Failure(FailureKind.TOO_MANY, detail))
        if not self.watchers:
            self._observers.append(self._observe)
        watcher = Watcher(tap_filter)
        self.watchers.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)
            if not self.watchers:
                self._observers.remove(self._observe)

    def close(self) -> None:
        """End all streams, and reject new ones."""
        self._closed = True
        for watcher in self.watchers:
            watcher.close()

    async def stream(self, tap_filter: TapFilter, seconds: float | None = None) -> AsyncGenerator[TapEvent, None]:
        """Yield the events of a new watcher, for at most `seconds`. Raises OperationFailed if there are too many."""
        watcher = self.open(tap_filter)
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, watcher.close)
        try:
            async for event in events(watcher):
                yield event
        finally:
            self.remove(watcher)
            if timer is not None:
                timer.cancel()

    def _observe(self, observation: Observation) -> None:
        for watcher in self.watchers:
            if not watcher.offer(observation):
                self.dropped += 1


async def events(watcher: Watcher) -> AsyncGenerator[TapEvent, None]:
    """Yield a watcher's events until it is closed."""
    yield TapEvent(EventKind.WATCHING)
    while True:
        observations = await watcher.next()
        for observation in observations:
            yield TapEvent(EventKind.REQUEST, request_data(observation))
        if watcher.unreported:
            yield TapEvent(EventKind.DROPPED, {"requests": watcher.unreported})
            watcher.unreported = 0
        if not observations:
            if watcher.closed:
                return
            yield TapEvent(EventKind.KEEP_ALIVE)


def request_data(observation: Observation) -> dict[str, Any]:
    """Return a request as JSON."""
    # Observations have the monotonic clock's time.
    at = time.time() - (time.monotonic() - observation.started)
    broker_seconds = observation.broker_seconds
    return {
        "time": round(at, 6),
        **describe(observation),
        "milliseconds": round(observation.seconds * 1000, 3),
        "broker_milliseconds": None if broker_seconds is None else round(broker_seconds * 1000, 3),
        "attempt": observation.attempt,
        "delay_ms": observation.delay_ms,
    }

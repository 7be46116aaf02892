"""Bound on concurrent TLS handshakes, shared fairly between source addresses."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Hashable
from operator import itemgetter
from typing import Protocol

# Part of the slots that one source may have, so that others always find a free one.
_SOURCE_SHARE = 0.25
# Seconds after which a handshake is closed if another one waits for its slot. A handshake needs two round trips.
MAX_CONTENDED_SECONDS = 3.0


class Handshake(Protocol):
    """A TLS handshake that needs a slot."""

    def begin_handshake(self) -> None:
        """Start the handshake, whose slot is free."""

    def evict_handshake(self) -> None:
        """Close the connection of a slow handshake, whose slot another one needs. Calls `HandshakeQueue.leave`."""


class HandshakeQueue:
    """Runs at most `limit` handshakes at once, of them at most a quarter from one source; others wait.

    Waiting handshakes start in turns by source. While one waits, handshakes that have run for longer than
    `MAX_CONTENDED_SECONDS` are evicted: those of its source if the source has its share, else any. The source None
    (unknown: a proxy without PROXY headers, a Unix socket) may have all slots.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._limit = limit
        self._share = max(1, int(limit * _SOURCE_SHARE))
        self._loop = loop
        # Start times in seconds, oldest first, by source.
        self._running: dict[Hashable, OrderedDict[Handshake, float]] = {}
        self._running_count = 0
        # By source, the source whose turn is next first.
        self._waiting: OrderedDict[Hashable, OrderedDict[Handshake, None]] = OrderedDict()
        self._eviction: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        """The number of handshakes with a slot."""
        return self._running_count

    @property
    def waiting(self) -> int:
        """The number of handshakes without a slot."""
        return sum(map(len, self._waiting.values()))

    def enter(self, handshake: Handshake, source: Hashable) -> bool:
        """Start the handshake now and return True, or return False and start it when a slot is free."""
        if self._has_slot(source) and source not in self._waiting:
            self._begin(handshake, source)
            return True
        self._waiting.setdefault(source, OrderedDict())[handshake] = None
        self._schedule_eviction()
        return False

    def leave(self, handshake: Handshake, source: Hashable) -> None:
        """Remove a handshake, running or waiting, and start those that wait for its slot. May be called again."""
        running = self._running.get(source)
        if running is not None and running.pop(handshake, None) is not None:
            self._running_count -= 1
            if not running:
                del self._running[source]
            self._fill()
            return
        waiting = self._waiting.get(source)
        if waiting is not None:
            waiting.pop(handshake, None)
            if not waiting:
                del self._waiting[source]

    def _has_slot(self, source: Hashable) -> bool:
        return self._running_count < self._limit and self._below_share(source)

    def _below_share(self, source: Hashable) -> bool:
        return source is None or len(self._running.get(source, ())) < self._share

    def _begin(self, handshake: Handshake, source: Hashable) -> None:
        self._running.setdefault(source, OrderedDict())[handshake] = self._loop.time()
        self._running_count += 1
        handshake.begin_handshake()

    def _fill(self) -> None:
        """Start waiting handshakes while slots are free, one of each source in turn."""
        while self._running_count < self._limit:
            # Only a few sources are skipped, because few can have their share at once.
            ready = next(((source,) for source in self._waiting if self._has_slot(source)), None)
            if ready is None:
                return
            (source,) = ready
            waiting = self._waiting.pop(source)
            handshake, _ = waiting.popitem(last=False)
            if waiting:
                self._waiting[source] = waiting
            self._begin(handshake, source)

    def _schedule_eviction(self) -> None:
        if self._eviction is None:
            self._eviction = self._loop.call_later(MAX_CONTENDED_SECONDS / 10, self._evict)

    def _evict(self) -> None:
        """Evict slow handshakes, at most as many as handshakes wait for their slots."""
        self._eviction = None
        started_before = self._loop.time() - MAX_CONTENDED_SECONDS
        for handshake in self._slow(started_before):
            handshake.evict_handshake()
        if self._waiting:
            self._schedule_eviction()

    def _slow(self, started_before: float) -> list[Handshake]:
        sources: Collection[Hashable] = self._waiting
        if any(map(self._below_share, self._waiting)):
            # A source below its share waits because all slots are taken.
            sources = self._running
        slow = [
            (start, handshake)
            for source in sources
            for handshake, start in self._running.get(source, {}).items()
            if start <= started_before
        ]
        slow.sort(key=itemgetter(0))
        return [handshake for _, handshake in slow[: self.waiting]]

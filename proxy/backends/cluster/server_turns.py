"""Turns of the connections to servers, so that many frames do not hold the event loop.

Replies that arrive together are handled together, for throughput, up to a time in each turn of the event loop that all
these connections share. What is left waits for the next turns, in which the connections follow one another.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Final

from protocol_negotiation.fair_turns import WaitingConnection, handle_slice

# Seconds of a turn of the event loop in which frames are handled, and of one connection's slice of it.
TURN_SECONDS: Final = 0.002
_SLICE_SECONDS: Final = 0.0005


class ServerTurns:
    """Turns of the connections to servers of one event loop. divided: number of reads that were divided."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.divided = 0
        self._loop = loop
        self._waiting: deque[WaitingConnection] = deque()
        self._scheduled = False
        # When the time of this turn of the event loop is over; 0 before its first frames.
        self._until = 0.0

    def until(self) -> float:
        """Return the time (monotonic) until which frames may be handled in this turn of the event loop."""
        if not self._until:
            self._begin(monotonic())
        return self._until

    def add(self, connection: WaitingConnection) -> None:
        """Let a connection that does not wait yet handle its frames, from the next turn of the event loop on."""
        self.divided += 1
        self._waiting.append(connection)
        self._schedule()

    def __len__(self) -> int:
        """Return the number of connections with waiting frames."""
        return len(self._waiting)

    def _begin(self, now: float) -> None:
        self._until = now + TURN_SECONDS
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._until = 0.0
        if not self._waiting:
            return
        now = monotonic()
        # Reads that follow in this turn of the event loop share its time.
        self._begin(now)
        while self._waiting and now < self._until:
            connection = self._waiting.popleft()
            if handle_slice(connection, min(now + _SLICE_SECONDS, self._until)):
                self._waiting.append(connection)
            now = monotonic()

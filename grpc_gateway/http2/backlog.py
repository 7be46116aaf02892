"""Fair handling of received frames: connections with many of them share a part of each turn of the event loop."""

import asyncio
import time
from collections import deque
from typing import Protocol

# Seconds of a turn of the event loop in which waiting frames are handled, over all connections. Reads of other
# connections are handled in the same turn.
TURN_SECONDS = 0.004


class BackloggedConnection(Protocol):
    """A connection with received frames that wait."""

    def handle_more(self) -> bool:
        """Handle some of the frames; return whether more of them wait."""


class BacklogQueue:
    """Connections whose frames wait, in the order of their turns."""

    __slots__ = ("_connections", "_loop", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: deque[BackloggedConnection] = deque()
        self._scheduled = False

    def add(self, connection: BackloggedConnection) -> None:
        """Let a connection that is not in the queue handle its frames, beginning in the next turn of the event loop."""
        self._connections.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        connections = self._connections
        # The loop's own time is fixed during a turn.
        end = time.monotonic() + TURN_SECONDS
        try:
            while connections:
                connection = connections.popleft()
                if connection.handle_more():
                    connections.append(connection)
                if time.monotonic() > end:
                    break
        finally:
            self._scheduled = bool(connections)
            if connections:
                self._loop.call_soon(self._run)

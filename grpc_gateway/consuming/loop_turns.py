"""A bounded number of pieces of work in each turn of the event loop."""

import asyncio
from collections import deque


class LoopTurns:
    """Lets `limit` callers continue in each turn of the event loop, in their order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return at once, or in a later turn if `limit` callers have continued in this one."""
        loop = asyncio.get_running_loop()
        if self._count == 0:
            loop.call_soon(self._next, loop)
        if self._count < self._limit and not self._waiting:
            self._count += 1
            return
        future = loop.create_future()
        self._waiting.append(future)
        await future

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a turn: wake the callers that have waited longest."""
        self._count = 0
        while self._waiting and self._count < self._limit:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._count += 1
        if self._count:
            loop.call_soon(self._next, loop)

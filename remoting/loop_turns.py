"""Turns of expensive steps: background tasks that never wait would hold the event loop one after another."""

import asyncio
from collections import deque


class LoopTurns:
    """Admits `limit` steps in each iteration of the event loop, in their order, so that clients are served between.

    Examples are the departures of clients from their groups, whose work clients cause without waiting for it, and the
    pops of receives.
    """

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        # Steps admitted in this iteration or the one before.
        self._admitted = 0
        # Empty as long as fewer than `limit` steps are admitted.
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for this step's turn."""
        loop = asyncio.get_running_loop()
        if self._admitted == self._limit:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        if not self._admitted:
            loop.call_soon(self._pass_on, loop)
        self._admitted += 1

    def __len__(self) -> int:
        """Return the number of steps that wait."""
        return len(self._waiting)

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._admitted = 0
        while self._waiting and self._admitted < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._admitted += 1
        if self._admitted:
            loop.call_soon(self._pass_on, loop)

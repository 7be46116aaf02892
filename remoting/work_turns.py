"""Turns of steps whose work is known afterwards, such as decompression: small data of many connections may each become
large, and would hold the event loop."""

import asyncio
from collections import deque


class WorkTurns:
    """Admits steps of all connections in their order, as far as an iteration of the event loop has room.

    limit: work of an iteration, in bytes or seconds; the step that exceeds it is the last one. Each step waits for
    `next`, and then reports its work to `use`, whether it succeeds or fails.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        # Work of this iteration; above zero, `_begin` is scheduled.
        self._used = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for this step's turn."""
        if self._used < self._limit and not self._waiting:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await self._wait(turn)
        while self._used >= self._limit:
            # A step that was admitted before it has used the room of this iteration.
            turn = asyncio.get_running_loop().create_future()
            self._waiting.appendleft(turn)
            await self._wait(turn)

    async def _wait(self, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The turn came, and passes to another step.
                self.use(1)
            raise

    def use(self, work: float) -> None:
        """Count the work of a step, which is above zero; admit the next step as far as there is room."""
        if not self._used:
            asyncio.get_running_loop().call_soon(self._begin)
        self._used += work
        if self._used < self._limit:
            self._admit()

    def _begin(self) -> None:
        self._used = 0.0
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

"""Turns of decompression: small messages of many connections may each become large, and would hold the event loop."""

import asyncio
from collections import deque
from typing import Final

# Decompressed bytes in one iteration of the event loop; the message that exceeds them is the last one.
_ITERATION_BYTES: Final = 1024 * 1024


class DecompressionTurns:
    """Admits the decompressions of all connections in their order, as far as an iteration of the event loop has bytes.

    Each step waits for `next`, and then reports its bytes to `use`, whether it succeeds or fails.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Bytes of this iteration; above zero, `_begin` is scheduled.
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for this step's turn."""
        if self._used < _ITERATION_BYTES and not self._waiting:
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        await self._wait(turn)
        while self._used >= _ITERATION_BYTES:
            # A step that was admitted before it has used the bytes of this iteration.
            turn = self._loop.create_future()
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

    def use(self, size: int) -> None:
        """Count the decompressed bytes of a step, at least one; admit the next step as far as there are bytes."""
        if not self._used:
            self._loop.call_soon(self._begin)
        self._used += size
        if self._used < _ITERATION_BYTES:
            self._admit()

    def _begin(self) -> None:
        self._used = 0
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

"""Turns of expensive steps: background tasks that never wait would hold the event loop one after another."""

import asyncio
from collections import deque


class LoopTurns:
    """Admits one step in each iteration of the event loop, in the order of arrival, so that clients are served between.

    Steps are those whose work clients cause without waiting for it, such as the departure of a client from its groups.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Whether a step has been admitted in this iteration or the one before.
        self._taken = False

    async def next(self) -> None:
        """Wait for this step's turn."""
        loop = asyncio.get_running_loop()
        if self._taken:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        self._taken = True
        loop.call_soon(self._pass_on)

    def __len__(self) -> int:
        """Return the number of steps that wait."""
        return len(self._waiting)

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._taken = False

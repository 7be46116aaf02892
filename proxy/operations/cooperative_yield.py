"""Yields to the event loop during long work, so that a list of thousands does not delay clients."""

import asyncio
from time import monotonic

# Seconds of work between yields.
_MAX_SECONDS = 0.005


class CooperativeYield:
    """Yields in one long task; call `checkpoint` between its steps."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = monotonic()

    async def checkpoint(self) -> None:
        """Yield to the event loop if the task has worked long enough."""
        if monotonic() - self._since > _MAX_SECONDS:
            await asyncio.sleep(0)
            self._since = monotonic()

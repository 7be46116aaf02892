"""Long work in turns: a list of thousands must not keep clients waiting."""

import asyncio
from time import monotonic

# Seconds of work until everybody else has a turn.
_WORK = 0.005


class Turns:
    """Taken between the pieces of one long work."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = monotonic()

    async def take(self) -> None:
        """Let everybody else have a turn, where enough has been done for now."""
        if monotonic() - self._since > _WORK:
            await asyncio.sleep(0)
            self._since = monotonic()

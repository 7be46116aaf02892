"""Waiting for a condition, in tests whose event loop also runs what they wait for."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for a condition; raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)

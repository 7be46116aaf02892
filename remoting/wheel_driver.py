"""What drives a timeout wheel (`remoting.wheel`, which knows no loop)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from remoting.wheel import TimeoutWheel


@contextmanager
def ticking(wheel: TimeoutWheel) -> Iterator[None]:
    """Advance the wheel on the running loop, as long as this lasts."""
    loop = asyncio.get_running_loop()
    handle = loop.call_later(wheel.tick, lambda: tick())

    def tick() -> None:
        nonlocal handle
        # First: whatever happens, the next tick comes.
        handle = loop.call_later(wheel.tick, tick)
        wheel.advance()

    try:
        yield
    finally:
        handle.cancel()

"""Standstills of the process: SIGSTOP, a paused virtual machine, a host that swaps.

An event loop runs its timers before it reads. After a standstill every timeout has passed, although the awaited bytes
may lie in the sockets. Therefore checks of timeouts that come late are postponed.
"""

import asyncio
from typing import Final

# Seconds by which a timer is late after a standstill; garbage collection and busy machines delay it by less.
_STANDSTILL_SECONDS: Final = 1.0
# Seconds in which bytes that arrived meanwhile are read, and responses that servers still send.
GRACE_SECONDS: Final = 1.0


def is_late(loop: asyncio.AbstractEventLoop, due: float) -> bool:
    """Return whether the process has stood still over the time at which a timer was due, in seconds of the loop."""
    return loop.time() - due > _STANDSTILL_SECONDS


async def sleep(seconds: float) -> None:
    """Sleep, and GRACE_SECONDS longer if the process stood still at the end: before a check of timeouts."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    if is_late(loop, due):
        await asyncio.sleep(GRACE_SECONDS)

"""Repeated background work of the cluster backend."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from protocol_negotiation import standstill
from remoting.tasks import every

Work = Callable[[], Awaitable[None]]


async def repeat(*works: tuple[str, float, Work]) -> None:
    """Do each work, which has a name, at its interval in seconds until cancelled. Failures are logged."""
    async with anyio.create_task_group() as group:
        for name, seconds, work in works:
            group.start_soon(partial(every, seconds, work, name=name, sleep=standstill.sleep))

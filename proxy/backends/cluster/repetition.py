"""Repeated background work of the cluster backend."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from protocol_negotiation import standstill
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.cluster")

Work = Callable[[], Awaitable[None]]


async def repeat(*works: tuple[float, Work]) -> None:
    """Do each work at its interval in seconds, until cancelled. A failure is logged, and does not end the work."""
    async with anyio.create_task_group() as group:
        for seconds, work in works:
            group.start_soon(_every, seconds, work)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await standstill.sleep(seconds)
        try:
            await work()
        except RemotingError as error:
            _log.warning("refreshing brokers and routes failed, the former ones stay in use: %s", error)
        except Exception:
            # Otherwise nothing would be refreshed any more, and the process would end.
            _log.exception("refreshing brokers and routes failed")

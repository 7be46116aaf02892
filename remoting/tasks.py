"""Background tasks: kept referenced until they end, or repeated; their failures are logged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio

_log = logging.getLogger("gantry")
# Seconds between log lines about one repeated task: some are repeated many times per second.
_LOG_INTERVAL = 1.0
_tasks: set[asyncio.Task[Any]] = set()
_Result = TypeVar("_Result")


def spawn(work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
    """Run a coroutine as a task, which is referenced until it ends."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def spawn_quietly(work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
    """Run a coroutine as a task that is not awaited, and log its failure."""
    task = spawn(work)
    task.add_done_callback(_log_failure)
    return task


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a future that may have no waiter: asyncio would log it otherwise."""
    if not future.cancelled():
        future.exception()


def isolated(work: Callable[..., object], *arguments: object) -> None:
    """Call a function for one of several clients; its failure is logged and does not affect the others."""
    try:
        work(*arguments)
    except Exception:
        _log.exception("%s failed", getattr(work, "__qualname__", work))


async def every(
    seconds: float | Callable[[], float],
    work: Callable[[], Awaitable[object] | None],
    *,
    name: str,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> None:
    """Sleep, then do the work, until cancelled. A failure is logged with the task's name, and the work is repeated.

    seconds: between the end of the work and its repetition; a function is called before each sleep. sleep:
    `protocol_negotiation.standstill.sleep` if the work checks timeouts.
    """
    clock = asyncio.get_running_loop().time
    log_at = 0.0
    while True:
        await sleep(seconds() if callable(seconds) else seconds)
        try:
            done = work()
            if done is not None:
                await done
        except Exception:
            # Otherwise the task group would end all other tasks, and with them the process.
            if clock() >= log_at:
                log_at = clock() + _LOG_INTERVAL
                _log.exception("the background task %r failed", name)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task failed", exc_info=error)

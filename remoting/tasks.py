"""Background tasks: kept referenced until they end, with a log of unhandled failures."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_log = logging.getLogger("gantry")
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


def isolated(work: Callable[..., object], *arguments: object) -> None:
    """Call a function for one of several clients; its failure is logged and does not affect the others."""
    try:
        work(*arguments)
    except Exception:
        _log.exception("%s failed", getattr(work, "__qualname__", work))


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task failed", exc_info=error)

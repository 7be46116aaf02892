"""The one place that makes tasks: it keeps them referenced, and reports the failures that nobody awaits."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

_log = logging.getLogger("gantry")
_tasks: set[asyncio.Task[Any]] = set()
_Result = TypeVar("_Result")


def spawn(work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
    """Run a coroutine on its own."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def spawn_quietly(work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
    """Run a coroutine whose result nobody awaits; its failure is logged."""
    task = spawn(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task failed", exc_info=error)

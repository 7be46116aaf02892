"""The pace of operators' requests: the steps of all of them together get a short time of each turn of the event loop.

A request may wait for a turn before every step, so that hundreds of them delay messages by little.
"""

import asyncio
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from remoting.work_turns import WorkTurns

# Seconds of CPU time of a turn of the event loop; the step that exceeds it is the last one.
_TURN_SECONDS = 0.005
# The least time of a step: clocks are coarse, and no step is free.
_LEAST_SECONDS = 1e-6

_Result = TypeVar("_Result")


def _stays() -> bool:
    return False


class WorkPace:
    """Runs work step by step; a step is what a task does between two waits."""

    def __init__(self) -> None:
        self._turns = WorkTurns(_TURN_SECONDS)

    async def run(self, work: Coroutine[Any, Any, _Result], has_left: Callable[[], bool] = _stays) -> _Result:
        """Run the work in this task, which is cancelled when the caller has left."""
        return await self._run(work, has_left)

    @types.coroutine
    def _run(self, work: Coroutine[Any, Any, _Result], has_left: Callable[[], bool]) -> Generator[Any, Any, _Result]:
        error: BaseException | None = None
        cancelled = False
        while True:
            try:
                if error is None:
                    yield from self._turns.next().__await__()
            except BaseException as thrown:
                error = thrown
            if not cancelled and has_left():
                cancelled = True
                _cancel_this_task()
            begin = time.thread_time()
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                result: _Result = end.value
                return result
            finally:
                self._turns.use(max(time.thread_time() - begin, _LEAST_SECONDS))
            error = None
            try:
                yield awaited
            except BaseException as thrown:
                error = thrown


def _cancel_this_task() -> None:
    """Cancel the task at its next wait, and what it waits for."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()

"""Loads that concurrent callers share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from remoting.tasks import retrieve_error, spawn

_Result = TypeVar("_Result")


class SharedLoad(Generic[_Result]):
    """A load whose result many callers share; the next one begins at least `interval` seconds after the last."""

    def __init__(self, load: Callable[[], Awaitable[_Result]], interval: float, clock: Callable[[], float]) -> None:
        self._load = load
        self._interval = interval
        self._clock = clock
        self._began = -interval
        self._waiting: asyncio.Task[_Result] | None = None

    async def next(self) -> _Result:
        """Return the result of the next load; it begins at once, or when the interval is over."""
        task = self._waiting
        if task is None:
            task = self._waiting = spawn(self._run())
            task.add_done_callback(retrieve_error)
        return await asyncio.shield(task)

    async def _run(self) -> _Result:
        delay = self._began + self._interval - self._clock()
        if delay > 0:
            await asyncio.sleep(delay)
        self._began = self._clock()
        # Later callers need a later load: their names may be newer than this one's result.
        self._waiting = None
        return await self._load()

"""Work that would block the loop, in a thread, one piece at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Done = Callable[["Future[Any]"], None]


class Background:
    """Runs a piece of work and has its outcome handled in the loop; without a loop, at once."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: tuple[Future[Any], Done] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def start(self, work: Callable[[], object], done: Done) -> None:
        """Begin; `done` is called with what came of it. Not while busy."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.run(work, done)
            return
        future = self._thread.submit(work)
        self._running = (future, done)
        future.add_done_callback(lambda future: self._report(loop, future))

    def run(self, work: Callable[[], object], done: Done) -> None:
        """The same, here and now, after what is under way."""
        self.wait()
        future = self._thread.submit(work)
        self._running = (future, done)
        self.wait()

    def wait(self) -> None:
        """Until nothing is under way, its outcome handled."""
        while self._running is not None:
            future, _ = self._running
            future.exception()
            self._finish(future)

    def _report(self, loop: asyncio.AbstractEventLoop, future: "Future[Any]") -> None:
        # A loop that is closed has nobody left to tell; `wait` finds the outcome.
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: "Future[Any]") -> None:
        if self._running is not None and self._running[0] is future:
            _, done = self._running
            self._running = None
            done(future)

    def close(self) -> None:
        self.wait()
        self._thread.shutdown()

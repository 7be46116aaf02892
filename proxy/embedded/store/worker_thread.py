"""Blocking work in a thread, one piece at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Done = Callable[["Future[Any]"], None]


class WorkerThread:
    """Runs blocking work in a thread and its callback in the event loop; without a loop, both synchronously."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: tuple[Future[Any], Done] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def start(self, work: Callable[[], object], done: Done) -> None:
        """Start work; `done` is called with its completed future. Must not be called while busy."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.run(work, done)
            return
        future = self._thread.submit(work)
        self._running = (future, done)
        future.add_done_callback(lambda future: self._report(loop, future))

    def run(self, work: Callable[[], object], done: Done) -> None:
        """Do work and call `done` before returning, after the work in progress."""
        self.wait()
        future = self._thread.submit(work)
        self._running = (future, done)
        self.wait()

    def wait(self) -> None:
        """Block until no work is in progress and all callbacks were called."""
        while self._running is not None:
            future, _ = self._running
            future.exception()
            self._finish(future)

    def _report(self, loop: asyncio.AbstractEventLoop, future: "Future[Any]") -> None:
        # After the end of the loop, `wait` handles the result.
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: "Future[Any]") -> None:
        if self._running is not None and self._running[0] is future:
            _, done = self._running
            self._running = None
            done(future)

    def close(self) -> None:
        """Wait for the work in progress and end the thread."""
        self.wait()
        self._thread.shutdown()

"""Many waiters, one fsync."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum

from proxy.embedded.store.background_worker import Background
from proxy.embedded.store.errors import StorageError
from proxy.embedded.store.log import Log


class SyncPolicy(StrEnum):
    """What a write waits for: an fsync, or nothing, with fsyncs by interval or as the operating system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class GroupCommit:
    """Makes the log durable: whoever comes while an fsync runs shares the next one.

    `after` is called each time more of the log is durable.
    """

    def __init__(self, log: Log, policy: SyncPolicy, after: Callable[[], None]) -> None:
        self._log = log
        self._policy = policy
        self._after = after
        self._background = Background("gantry-log-sync")
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._planned = False
        self._target = 0

    def synced(self) -> "asyncio.Future[None]":
        """Done when what was written so far is as durable as the policy promises. Raises StorageFailed."""
        log = self._log
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if log.failed is not None:
            future.set_exception(log.failed)
        elif self._policy is not SyncPolicy.ALWAYS or log.synced >= log.needed:
            future.set_result(None)
        else:
            self._waiters.append((log.needed, future))
            self._plan(loop)
        return future

    def start(self) -> None:
        """Begin an fsync unless one runs, or nothing needs one."""
        self._planned = False
        log = self._log
        if self._background.busy or log.failed is not None or log.synced >= log.needed:
            return
        self._target, work = log.flush()
        self._background.start(work, self._done)

    def run(self) -> None:
        """Make everything durable before returning. Raises StorageFailed."""
        self._background.wait()
        log = self._log
        if log.failed is None and log.synced < log.needed:
            self._target, work = log.flush()
            self._background.run(work, self._done)
        if log.failed is not None:
            raise log.failed

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        # At the end of this turn of the loop, so that all who write in it are in.
        if not self._planned and not self._background.busy:
            self._planned = True
            loop.call_soon(self.start)

    def _done(self, future: "Future[object]") -> None:
        error = future.exception()
        if error is not None:
            self._refuse(self._log.fail(f"an fsync of the log failed: {error}"))
            return
        self._log.synced = self._target
        while self._waiters and self._waiters[0][0] <= self._target:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self._after()
        if self._waiters:
            # After those who were just told, who may have more to write.
            self._plan(self._waiters[0][1].get_loop())

    def _refuse(self, error: StorageError) -> None:
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()

    def close(self) -> None:
        self._background.close()

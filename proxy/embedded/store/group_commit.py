"""Group commit: one fsync of the log for many writers."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from proxy.embedded.store.errors import StorageError
from proxy.embedded.store.log import Log
from proxy.embedded.store.options import SyncPolicy
from proxy.embedded.store.worker_thread import WorkerThread

_log = logging.getLogger("gantry.embedded")


class GroupCommit:
    """Makes the log durable. Writers that arrive during an fsync share the next one.

    `on_synced` is called each time that more of the log is durable.
    """

    def __init__(self, log: Log, policy: SyncPolicy, on_synced: Callable[[], None]) -> None:
        self._log = log
        self._policy = policy
        self._on_synced = on_synced
        self._worker = WorkerThread("gantry-log-sync")
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._scheduled = False
        self._target = 0

    def synced(self) -> "asyncio.Future[None]":
        """Return a future that is done when the writes so far are durable as the policy promises.

        The future raises StorageFailed.
        """
        log = self._log
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if log.failed is not None:
            future.set_exception(log.failed)
        elif self._policy is not SyncPolicy.ALWAYS or log.synced >= log.needed:
            future.set_result(None)
        else:
            self._waiters.append((log.needed, future))
            self._schedule(loop)
        return future

    def start(self) -> None:
        """Start an fsync unless one is in progress or none is needed; after a failed write, fail those that wait."""
        self._scheduled = False
        log = self._log
        if self._worker.busy:
            return
        if log.failed is not None:
            self._fail(log.failed)
            return
        if log.synced >= log.needed:
            return
        self._target, work = log.flush()
        self._worker.start(work, self._done)

    def run(self) -> None:
        """Make everything durable before returning. Raises StorageFailed."""
        self._worker.wait()
        log = self._log
        if log.failed is None and log.synced < log.needed:
            self._target, work = log.flush()
            self._worker.run(work, self._done)
        if log.failed is not None:
            raise log.failed

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # At the end of this iteration of the loop, so that all its writes are included.
        if not self._scheduled and not self._worker.busy:
            self._scheduled = True
            loop.call_soon(self.start)

    def _done(self, future: "Future[object]") -> None:
        error = future.exception()
        if error is not None:
            self._fail(self._log.fail(f"an fsync of the log failed: {error}"))
            return
        self._log.synced = self._target
        while self._waiters and self._waiters[0][0] <= self._target:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        try:
            self._on_synced()
        except Exception:
            # The other writers must still be notified.
            _log.exception("handling a finished fsync failed")
        if self._waiters:
            # After the writers that were just notified, which may write more.
            self._schedule(self._waiters[0][1].get_loop())

    def _fail(self, error: StorageError) -> None:
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()

    def close(self) -> None:
        """Wait for the fsync in progress and end the thread."""
        self._worker.close()

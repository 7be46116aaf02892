"""Checkpoints: the state of the store, written to the index file by a thread."""

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future

from proxy.embedded.store.disk_reserve import DiskReserve
from proxy.embedded.store.index import Index
from proxy.embedded.store.log import Log
from proxy.embedded.store.options import StoreOptions
from proxy.embedded.store.state import State
from proxy.embedded.store.worker_thread import WorkerThread

_log = logging.getLogger(__name__)

# Milliseconds from a failed checkpoint to the next one.
_RETRY_INTERVAL = 5_000


class Checkpointer:
    """Writes checkpoints, one at a time. The index file reflects the log up to `position`.

    `start_sync` begins an fsync of the log, after which `log_synced` is to be called.
    """

    def __init__(
        self,
        position: int,
        log: Log,
        index: Index,
        state: State,
        reserve: DiskReserve,
        options: StoreOptions,
        clock: Callable[[], int],
        start_sync: Callable[[], None],
    ) -> None:
        self.position = position
        self._store_log = log
        self._index = index
        self._state = state
        self._reserve = reserve
        self._options = options
        self._clock = clock
        self._start_sync = start_sync
        self._worker = WorkerThread("gantry-checkpoint")
        # Whether a checkpoint begins once the log is durable.
        self._due = False
        self._retry_at = 0
        self._written_at = clock()

    def start_if_needed(self) -> None:
        """Start a checkpoint soon if the log has grown enough since the last one, or there are many changes."""
        options = self._options
        grown = self._store_log.end - self.position > options.checkpoint_bytes
        if grown or self._state.pending > options.checkpoint_changes:
            self.start_soon()

    def start_if_many_changes(self) -> None:
        """Start a checkpoint soon if many changes are not in the index file."""
        if self._state.pending > self._options.checkpoint_changes:
            self.start_soon()

    def start_if_stale(self, now: int) -> None:
        """Start a checkpoint soon if the last one is old, or segments were removed since."""
        log = self._store_log
        stale = now - self._written_at >= self._options.checkpoint_age and log.needed > self.position
        if stale or log.start != self._state.log_start:
            self.start_soon()

    def start_soon(self) -> None:
        """Start a checkpoint as soon as the log is durable."""
        if self._worker.busy or self._clock() < self._retry_at:
            return
        self._due = True
        if self._store_log.synced >= self._store_log.needed:
            self._start()
        else:
            self._start_sync()

    def log_synced(self) -> None:
        """Start the checkpoint that waits for the log, which is durable a bit further."""
        if self._due and not self._worker.busy:
            self._start()

    def run(self) -> None:
        """Write the index file before returning."""
        self._worker.wait()
        self._start()
        self._worker.wait()

    def _start(self) -> None:
        self._due = False
        log = self._store_log
        update = self._state.stage(min(log.synced, log.needed), log.start)
        self._worker.start(lambda: self._index.commit(update), lambda future: self._finish(future, update.position))

    def _finish(self, future: "Future[object]", position: int) -> None:
        error = future.exception()
        if error is not None:
            _log.error("the index of %s cannot be written now: %s", self._store_log.directory.parent, error)
            self._state.discard_staged()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL and self._reserve.give_up():
                # At once: the reserve is filled again when its room is free.
                self._start()
                return
            self._retry_at = self._clock() + _RETRY_INTERVAL
            return
        self._committed(position)
        self._written_at = self._clock()

    def _committed(self, position: int) -> None:
        self._state.commit_staged()
        self._index.version += 1
        self.position = position

    # Recovery.

    def restore_log_end(self) -> None:
        """Continue the log where the index file ends, if the log lost its last bytes."""
        log = self._store_log
        if self.position > log.end:
            _log.error("the log in %s lacks its last %d bytes", log.directory.parent, self.position - log.end)
            log.roll(self.position)

    def bound_memory(self, position: int) -> None:
        """Write the state up to a position of the log synchronously, if many changes are not in the index file."""
        if self._state.pending > self._options.checkpoint_changes:
            log = self._store_log
            if log.synced < position:
                log.synced, flush = log.flush()
                flush()
            self._index.commit(self._state.stage(position, log.start))
            self._committed(position)

    def close(self) -> None:
        """Wait for the checkpoint in progress and end the thread."""
        self._worker.close()

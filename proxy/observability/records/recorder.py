"""Recorder of traffic: collects records on the event loop and writes them in a separate thread.

On the event loop, a request costs the packing of some numbers. The thread converts batches to columns and writes them.
If it falls behind because the store is slow, further records are dropped and counted.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

import anyio.to_thread
from pyarrow import RecordBatch

from proxy.core.client_registry import MembershipEvent
from proxy.core.connections import ConnectionEvent
from proxy.core.events import Observation
from proxy.observability.metrics.family import Family, Kind, Samples
from proxy.observability.records import arrow, rows
from proxy.observability.records.counts import DropReason, RecordCounts
from proxy.observability.records.origin import Origin
from proxy.observability.records.request_columns import RequestColumns
from proxy.observability.records.retention import Retention
from proxy.observability.records.sampling import Sampling
from proxy.observability.records.schema import CONNECTIONS, MEMBERS, REQUESTS, Table
from proxy.observability.records.store import Store
from proxy.observability.records.writer import Writer
from proxy.settings.traffic_records import TrafficSettings, redacted

_log = logging.getLogger("gantry.traffic")

# Requests in a batch, and seconds after which a smaller batch is handed to the thread. The conversion of a large batch
# costs little more than that of a small one.
_BATCH_SIZE = 16_384
_BATCH_INTERVAL = 1.0
# Seconds between applications of the retention.
_RETENTION_INTERVAL = 300.0
# Seconds that the thread has to write the remaining records on close.
_CLOSE_TIMEOUT = 15.0
PENDING: Final = Family("gantry_traffic_pending", Kind.GAUGE, "Traffic records that are not in a complete file yet.")
LAG: Final = Family(
    "gantry_traffic_lag_seconds",
    Kind.GAUGE,
    "Age in seconds of the oldest traffic record that is not in a complete file yet.",
)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records of one interval. since: `time.monotonic` at its start."""

    since: float
    requests: RequestColumns
    events: list[tuple[Table, tuple[Any, ...]]]


class Recorder:
    """Records requests (`observe`), connections (`on_connection_event`) and memberships (`on_membership_event`).

    All methods must be called in the event loop's thread. The constructor raises TrafficError if `settings.directory`
    is not usable; an unreachable store is only logged.
    """

    def __init__(self, settings: TrafficSettings, replica: str, worker: int = 0) -> None:
        assert settings.directory is not None
        self.counts = RecordCounts()
        self._where = settings.directory
        self._store = Store(settings.directory)
        try:
            self._store.check()
        except OSError as error:
            # The proxy starts nevertheless; the writer tries again.
            _log.warning("store of traffic records %s is unreachable: %s", redacted(settings.directory), error)
        self._origin = Origin(replica, worker, time.time_ns() // 1000)
        self._sampling = Sampling(settings.rules) if settings.rules else None
        if self._sampling is not None:
            self.counts.left_out = self._sampling.left_out
        self._writer = Writer(self._store, self._origin, self.counts, settings.interval, settings.file_size)
        self._retention = Retention(
            settings.retention_time, settings.retention_size, 2 * settings.interval + 60.0, self.counts.removed
        )
        self._max_pending = settings.buffer
        # At most a part of the buffer, because a batch that exceeds it is dropped completely.
        self._batch_size = min(_BATCH_SIZE, self._max_pending // 4)
        # Seconds.
        self._batch_interval = min(_BATCH_INTERVAL, settings.interval / 4)
        # Arrow loads pandas, where it is installed, with its first column: a second that no request should wait for.
        RequestColumns().batch(self._origin, 0.0)
        self._requests = RequestColumns()
        self._events: list[tuple[Table, tuple[Any, ...]]] = []
        self._since = time.monotonic()
        # Records handed to the thread, which only the event loop changes, and processed, which only the thread changes.
        self._handed = self._processed = 0
        # Start of the batch that the thread is converting.
        self._converting_since: float | None = None
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._writer_thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    # On the event loop.

    def start(self) -> None:
        """Start the writer thread."""
        _log.info("writing traffic records to %s", redacted(self._where))
        self._writer_thread.start()
        self._schedule()

    async def close(self) -> None:
        """Write the remaining records and stop the thread, within the timeout."""
        if self._timer is not None:
            self._timer.cancel()
        self._submit()
        self._queue.put(None)
        await anyio.to_thread.run_sync(self._writer_thread.join, _CLOSE_TIMEOUT)
        if self._writer_thread.is_alive():
            _log.error("timed out writing %d traffic records on close", self.pending)

    def observe(self, observation: Observation) -> None:
        """Observer: record a request."""
        weight = 1.0 if self._sampling is None else self._sampling.weight(observation)
        if weight is None:
            return
        if self._requests.add(observation, weight) >= self._batch_size:
            self._submit()

    def on_connection_event(self, event: ConnectionEvent) -> None:
        """Connection listener: record a connection that opens or closes."""
        self._events.append((CONNECTIONS, rows.connection(self._origin, event, time.time(), time.monotonic())))

    def on_membership_event(self, event: MembershipEvent) -> None:
        """Membership listener: record a client of this replica that joins or leaves a group."""
        row = rows.member(self._origin, event, time.time())
        if row is not None:
            self._events.append((MEMBERS, row))

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the counts and gauges of the records."""
        yield from self.counts.read()
        yield PENDING, {(): self.pending}
        yield LAG, {(): self.lag(time.monotonic())}

    @property
    def pending(self) -> int:
        """Number of records that are not in a complete file yet."""
        unwritten = len(self._requests) + len(self._events) + self._handed - self._processed
        return unwritten + self._writer.rows

    def lag(self, now: float) -> float:
        """Return the age in seconds of the oldest record that is not in a complete file."""
        starts = [self._writer.since, self._converting_since, self._since if self._requests or self._events else None]
        return max((now - start for start in starts if start is not None), default=0.0)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._batch_interval, self._on_timer)

    def _on_timer(self) -> None:
        # First, so that a failure does not end the timer.
        self._schedule()
        self._submit()

    def _submit(self) -> None:
        """Hand the collected records to the thread, or drop them if too many are pending."""
        since, self._since = self._since, time.monotonic()
        size = len(self._requests) + len(self._events)
        if not size:
            return
        batch = _Batch(since, self._requests, self._events)
        self._requests, self._events = RequestColumns(), []
        if self._handed - self._processed + size > self._max_pending:
            self.counts.dropped[DropReason.FULL] += size
            return
        self._handed += size
        self._queue.put(batch)

    # In the writer thread.

    def _run(self) -> None:
        retention_at = time.monotonic()
        while True:
            if time.monotonic() >= retention_at:
                self._apply_retention()
                retention_at = time.monotonic() + _RETENTION_INTERVAL
            try:
                batch = self._queue.get(timeout=self._batch_interval)
            except Empty:
                pass
            else:
                if batch is None:
                    break
                self._process(batch)
            self._writer.finish()
        self._writer.finish(everything=True)

    def _process(self, batch: _Batch) -> None:
        size = len(batch.requests) + len(batch.events)
        self._converting_since = batch.since
        try:
            self._convert(batch)
        except Exception:
            # A bug in the conversion must not end the thread.
            self.counts.dropped[DropReason.FAULT] += size
            _log.exception("cannot convert traffic records, %d were lost", size)
        finally:
            self._processed += size
            self._converting_since = None

    def _convert(self, batch: _Batch) -> None:
        parts: list[tuple[Table, RecordBatch]] = []
        if batch.requests:
            offset = time.time() - time.monotonic()
            parts.append((REQUESTS, batch.requests.batch(self._origin, offset)))
        for table in (CONNECTIONS, MEMBERS):
            table_rows = [row for row_table, row in batch.events if row_table is table]
            if table_rows:
                parts.append((table, arrow.rows(table, table_rows)))
        for table, columns in parts:
            for hour, part in arrow.by_hour(columns):
                self._writer.write(table, hour, part, batch.since)

    def _apply_retention(self) -> None:
        """Remove the files that are due; failures are logged."""
        try:
            removed = self._retention.apply(self._store, time.time())
        except Exception as error:
            # A store may raise any exception.
            _log.warning("cannot remove old traffic records: %s", error)
        else:
            if removed:
                _log.info("removed %d files of old traffic records", removed)

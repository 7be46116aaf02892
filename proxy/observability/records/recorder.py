"""The recorder: takes what there is to record on the event loop, and has it written by a thread of its own.

What a request costs the loop is packing some numbers. The thread makes columns of what it is handed and writes them;
when it does not keep up, because the store is slow, further records are dropped and counted, and nothing else happens.
"""

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import anyio.to_thread
from pyarrow import RecordBatch

from proxy.core.client_registry import MembershipEvent
from proxy.core.connections import ConnectionEvent
from proxy.core.events import Observation
from proxy.observability.metrics import Metrics
from proxy.observability.records import arrow, rows
from proxy.observability.records.counts import Counts, Drop
from proxy.observability.records.origin import Origin
from proxy.observability.records.requests import RequestColumns
from proxy.observability.records.retention import Retention
from proxy.observability.records.sampling import Sampling
from proxy.observability.records.schema import CONNECTIONS, MEMBERS, REQUESTS, Table
from proxy.observability.records.store import Store, shown
from proxy.observability.records.writer import Writer
from proxy.settings.traffic_records import TrafficSettings

_log = logging.getLogger("gantry.traffic")

# Requests that are handed over at a time, and seconds after which fewer are: making columns of many costs little more
# than of a few.
_BATCH = 16_384
_TURN = 1.0
# Seconds between looks at what is to be removed.
_CARE = 300.0
# Seconds that the thread has at the end.
_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was recorded in one turn; since: `time.monotonic` of the former one."""

    since: float
    requests: RequestColumns
    events: list[tuple[Table, tuple[Any, ...]]]


class Recorder:
    """Keeps records of requests (`observe`), connections (`note_connection`) and members (`note_movement`).

    All methods are for the event loop's thread. Raises TrafficError, when made, where nothing can be kept at
    `settings.directory`; that something fails there is no error.
    """

    def __init__(self, settings: TrafficSettings, replica: str, worker: int = 0) -> None:
        assert settings.directory is not None
        self.counts = Counts()
        self._where = settings.directory
        self._store = Store(settings.directory)
        try:
            self._store.check()
        except OSError as error:
            # It may come back; the proxy does not wait for it.
            _log.warning("%s cannot be reached now: %s", shown(settings.directory), error)
        self._origin = Origin(replica, worker, time.time_ns() // 1000)
        self._sampling = Sampling(settings.rules) if settings.rules else None
        if self._sampling is not None:
            self.counts.left_out = self._sampling.left_out
        self._writer = Writer(self._store, self._origin, self.counts, settings.interval, settings.file_size)
        self._retention = Retention(
            settings.retention_time, settings.retention_size, 2 * settings.interval + 60.0, self.counts.removed
        )
        self._most = settings.buffer
        # Of a small buffer, a part: or all would be dropped that is handed over at once.
        self._batch = min(_BATCH, self._most // 4)
        # Seconds between turns.
        self._pace = min(_TURN, settings.interval / 4)
        self._requests = RequestColumns()
        self._events: list[tuple[Table, tuple[Any, ...]]] = []
        self._since = time.monotonic()
        # Records handed to the thread: written here only; and done with: written there only.
        self._handed = self._done = 0
        self._at: float | None = None
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    # On the loop.

    def start(self) -> None:
        """Begin to write."""
        _log.info("traffic records go to %s", shown(self._where))
        self._thread.start()
        self._schedule()

    async def close(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._queue.put(None)
        await anyio.to_thread.run_sync(self._thread.join, _TIMEOUT)
        if self._thread.is_alive():
            _log.error("%d traffic records could not be written in time", self.pending)

    def observe(self, observation: Observation) -> None:
        """Observer: record a request."""
        weight = 1.0 if self._sampling is None else self._sampling.weight(observation)
        if weight is None:
            return
        self._requests.add(observation, weight)
        if len(self._requests) >= self._batch:
            self._hand_over()

    def note_connection(self, event: ConnectionEvent) -> None:
        """Record that a connection has opened, or closed."""
        self._events.append((CONNECTIONS, rows.connection(self._origin, event, time.time(), time.monotonic())))

    def note_movement(self, movement: MembershipEvent) -> None:
        """Record that a client of this replica has joined a group, or left it."""
        row = rows.member(self._origin, movement, time.time())
        if row is not None:
            self._events.append((MEMBERS, row))

    def watch(self, metrics: Metrics) -> None:
        """Show what becomes of the records."""
        self.counts.watch(metrics)
        metrics.gauge("gantry_traffic_pending", "Traffic records that are in no complete file.", lambda: self.pending)
        metrics.gauge(
            "gantry_traffic_lag_seconds",
            "Age of the oldest traffic record that is in no complete file.",
            lambda: self.lag(time.monotonic()),
        )

    @property
    def pending(self) -> int:
        """Records that are in no complete file yet."""
        waiting = len(self._requests) + len(self._events) + self._handed - self._done
        return waiting + self._writer.rows

    def lag(self, now: float) -> float:
        """How long ago the oldest record came that is in no complete file, in seconds."""
        since = [self._writer.since, self._at, self._since if self._requests or self._events else None]
        return max((now - each for each in since if each is not None), default=0.0)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pace, self._turn)

    def _turn(self) -> None:
        # First: whatever happens, the next turn comes.
        self._schedule()
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the thread what there is, unless it has too much already."""
        since, self._since = self._since, time.monotonic()
        size = len(self._requests) + len(self._events)
        if not size:
            return
        batch = _Batch(since, self._requests, self._events)
        self._requests, self._events = RequestColumns(), []
        if self._handed - self._done + size > self._most:
            self.counts.dropped[Drop.FULL] += size
            return
        self._handed += size
        self._queue.put(batch)

    # In the thread.

    def _run(self) -> None:
        care_at = time.monotonic()
        while True:
            if time.monotonic() >= care_at:
                self._care()
                care_at = time.monotonic() + _CARE
            try:
                batch = self._queue.get(timeout=self._pace)
            except Empty:
                pass
            else:
                if batch is None:
                    break
                self._take(batch)
            self._writer.finish()
        self._writer.finish(everything=True)

    def _take(self, batch: _Batch) -> None:
        size = len(batch.requests) + len(batch.events)
        self._at = batch.since
        try:
            self._convert(batch)
        except Exception:
            # A mistake of ours costs these records, not all that come after them.
            self.counts.dropped[Drop.FAULT] += size
            _log.exception("traffic records could not be converted")
        finally:
            self._done += size
            self._at = None

    def _convert(self, batch: _Batch) -> None:
        parts: list[tuple[Table, RecordBatch]] = []
        if batch.requests:
            offset = time.time() - time.monotonic()
            parts.append((REQUESTS, batch.requests.batch(self._origin, offset)))
        for table in (CONNECTIONS, MEMBERS):
            made = [row for kind, row in batch.events if kind is table]
            if made:
                parts.append((table, arrow.rows(table, made)))
        for table, columns in parts:
            for hour, part in arrow.by_hour(columns):
                self._writer.write(table, hour, part, batch.since)

    def _care(self) -> None:
        """Remove what is too old or too much."""
        try:
            removed = self._retention.apply(self._store, time.time())
        except Exception as error:
            # Of a store, whatever it raises.
            _log.warning("old traffic records cannot be removed: %s", error)
        else:
            if removed:
                _log.info("%d files of old traffic records were removed", removed)

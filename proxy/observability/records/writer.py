"""Writer of records: one open file per table and hour, completed when it is old or large enough.

Failures do not affect traffic: records that cannot be written are dropped, counted and logged periodically. The writer
must be used by one thread.
"""

import logging
import time
from collections.abc import Callable

import pyarrow as pa

from proxy.observability.records.counts import DropReason, RecordCounts
from proxy.observability.records.file import RecordFile
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import Table
from proxy.observability.records.store import Store, partition

_log = logging.getLogger("gantry.traffic")

# Seconds after a failure of the store until it is tried again, and until a failure is logged again.
_RETRY_INTERVAL = 5.0
_LOG_INTERVAL = 60.0


class Writer:
    """Writes batches. interval: seconds after which a file is completed; file_size: bytes; clock: returns seconds."""

    def __init__(
        self,
        store: Store,
        origin: Origin,
        counts: RecordCounts,
        interval: float,
        file_size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._origin = origin
        self._counts = counts
        self._interval = interval
        self._file_size = file_size
        self._clock = clock
        self._open: dict[tuple[str, int], RecordFile] = {}
        self._number = 0
        self._retry_at = self._log_at = 0.0
        self._unreported = 0

    def write(self, table: Table, hour: int, batch: pa.RecordBatch, since: float) -> None:
        """Write rows of one hour since 1970. `since` is the `time.monotonic` at which the first of them arrived."""
        if self._clock() < self._retry_at:
            self._drop(batch.num_rows)
            return
        file = self._open.get((table.name, hour))
        if file is None:
            path = f"{partition(table.name, hour)}/{self._origin.file_name(self._number)}"
            self._number += 1
            file = self._open[table.name, hour] = RecordFile(self._store, table, path, since)
        try:
            file.add(batch)
        except Exception as error:
            del self._open[table.name, hour]
            self._fail(file, error)
        else:
            if file.size >= self._file_size:
                del self._open[table.name, hour]
                self._finish(file)

    def finish(self, everything: bool = False) -> None:
        """Complete the files that are old enough, or all."""
        now = self._clock()
        for key, file in list(self._open.items()):
            if everything or now - file.since >= self._interval:
                del self._open[key]
                self._finish(file)

    @property
    def rows(self) -> int:
        """Number of rows in incomplete files."""
        return sum(file.rows for file in list(self._open.values()))

    @property
    def since(self) -> float | None:
        """Arrival of the oldest row in an incomplete file, by the clock; None if all files are complete."""
        return min((file.since for file in list(self._open.values())), default=None)

    def _finish(self, file: RecordFile) -> None:
        try:
            size = file.finish()
        except Exception as error:
            self._fail(file, error)
            return
        counts, name = self._counts, file.table.name
        counts.written[name] += file.rows
        counts.files[name] += 1
        counts.bytes[name] += size

    def _fail(self, file: RecordFile, error: Exception) -> None:
        """Discard the file. Handles every exception that a store may raise, because it must not end the thread."""
        now = self._clock()
        self._retry_at = now + _RETRY_INTERVAL
        try:
            file.discard()
        except Exception as discard_error:
            # Readers skip the incomplete file, and retention removes it.
            _log.debug("cannot remove an incomplete file of traffic records: %s", discard_error)
        self._drop(file.rows)
        if now >= self._log_at:
            self._log_at = now + _LOG_INTERVAL
            _log.error("cannot write traffic records, %d were lost: %s", self._unreported, error)
            self._unreported = 0

    def _drop(self, rows: int) -> None:
        self._unreported += rows
        self._counts.dropped[DropReason.STORE] += rows

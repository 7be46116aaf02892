"""Records to files: a file per table and hour is open, complete when it is old or large enough.

Whatever fails, traffic goes on: what cannot be written is dropped and counted, and the log says so now and then. To be
used by one thread.
"""

import logging
import time
from collections.abc import Callable

import pyarrow as pa

from proxy.observability.records.counts import Counts, Drop
from proxy.observability.records.file import RecordFile
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import Table
from proxy.observability.records.store import Store, partition

_log = logging.getLogger("gantry.traffic")

# Seconds until a store that failed is tried again, and until the log speaks of it again.
_AGAIN = 5.0
_QUIET = 60.0


class Writer:
    """Writes batches. interval: seconds after which a file is complete; file_size: bytes; clock: seconds."""

    def __init__(
        self,
        store: Store,
        origin: Origin,
        counts: Counts,
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
        self._barred_until = self._quiet_until = 0.0
        self._lost = 0

    def write(self, table: Table, hour: int, batch: pa.RecordBatch, since: float) -> None:
        """Write rows of one hour since 1970; since: when the first of them arrived."""
        if self._clock() < self._barred_until:
            self._lose(batch.num_rows)
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
        """Rows in files that are not complete."""
        return sum(file.rows for file in list(self._open.values()))

    @property
    def since(self) -> float | None:
        """When the oldest row arrived that is not in a complete file; None: all are."""
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
        """Give up the file. Everything that a store may raise comes here: it must not end the thread."""
        now = self._clock()
        self._barred_until = now + _AGAIN
        try:
            file.discard()
        except Exception as trouble:
            # Nobody reads it, and retention removes it.
            _log.debug("a file of traffic records was left: %s", trouble)
        self._lose(file.rows)
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            _log.error("traffic records cannot be written, %d have been lost: %s", self._lost, error)
            self._lost = 0

    def _lose(self, rows: int) -> None:
        self._lost += rows
        self._counts.dropped[Drop.STORE] += rows

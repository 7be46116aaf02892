"""A file of records while it is written: rows are collected into row groups, and the complete file appears at once."""

import pyarrow as pa
from pyarrow import parquet

from proxy.observability.records import arrow
from proxy.observability.records.schema import Table
from proxy.observability.records.store import Store

# Rows that are compressed together: few enough to buffer, enough for readers to skip row groups.
ROW_GROUP = 65_536


class RecordFile:
    """A file of one table and hour. since: `time.monotonic` of its first row. All methods may raise OSError."""

    def __init__(self, store: Store, table: Table, path: str, since: float) -> None:
        self.table = table
        self.rows = 0
        self.since = since
        self._store = store
        self._path = path
        self._schema = arrow.schema(table)
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._stream: pa.NativeFile | None = None
        self._writer: parquet.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        written: int = 0 if self._stream is None else self._stream.tell()
        return written

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write a row group if there are enough."""
        self.rows += batch.num_rows
        self._buffer.append(batch)
        self._buffered_rows += batch.num_rows
        if self._buffered_rows >= ROW_GROUP:
            self._write()

    def finish(self) -> int:
        """Write the remaining rows, publish the file and return its size in bytes."""
        self._write()
        assert self._writer is not None
        assert self._stream is not None
        self._writer.close()
        self._stream.close()
        return self._store.publish(self._path)

    def discard(self) -> None:
        """Remove the file after a failure."""
        self._buffer.clear()
        if self._writer is not None:
            # Otherwise it would write the footer, and fail again, when it is garbage-collected.
            self._writer.is_open = False
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            finally:
                self._store.discard(self._path)

    def _write(self) -> None:
        if self._stream is None:
            self._stream = self._store.create(self._path)
            self._writer = parquet.ParquetWriter(
                self._stream,
                self._schema,
                compression="zstd",
                use_dictionary=[column.name for column in self.table.columns if column.dictionary],
                write_statistics=True,
                # Otherwise readers take a flipped bit for another value.
                write_page_checksum=True,
            )
        assert self._writer is not None
        if self._buffer:
            rows = pa.Table.from_batches(self._buffer, self._schema).combine_chunks()
            self._buffer, self._buffered_rows = [], 0
            self._writer.write_table(rows, row_group_size=ROW_GROUP)

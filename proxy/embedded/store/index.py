"""The index file (SQLite): positions of messages and contents of tables, as of a position of the log.

A thread writes it up to that position in one SQLite transaction; later changes are in memory and in the log. Each table
is written by one statement with one blob, because a statement runs without the interpreter's lock, while row by row the
thread and the event loop would compete for it.
"""

import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson

from proxy.embedded.store import keys
from proxy.embedded.store.damage import Damage
from proxy.embedded.store.errors import Corrupt
from proxy.embedded.store.queue import CHUNK, ENTRY_SIZE, Entry, Queue, decode_entry

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
    number INTEGER PRIMARY KEY, topic TEXT, queue_id INTEGER, first INTEGER, next INTEGER
);
CREATE TABLE IF NOT EXISTS chunks (id INTEGER PRIMARY KEY, entries BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS periods (period INTEGER PRIMARY KEY, oldest INTEGER, newest INTEGER);
CREATE TABLE IF NOT EXISTS keys (period INTEGER, entry BLOB, PRIMARY KEY (period, entry)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dropped (topic TEXT PRIMARY KEY, position INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (tab BLOB, key BLOB, value BLOB, PRIMARY KEY (tab, key)) WITHOUT ROWID;
"""
# Splits a blob of `size of a, size of b, a, b` (sizes of eight digits each) into rows of positions and sizes.
_PAIRS = """
WITH RECURSIVE pairs(p, a, b) AS (
    SELECT 1, CAST(substr(?1, 1, 8) AS INTEGER), CAST(substr(?1, 9, 8) AS INTEGER) WHERE length(?1) > 0
    UNION ALL
    SELECT
        p + 16 + a + b,
        CAST(substr(?1, p + 16 + a + b, 8) AS INTEGER),
        CAST(substr(?1, p + 24 + a + b, 8) AS INTEGER)
    FROM pairs WHERE p + 16 + a + b <= length(?1)
)
"""
_PUT_ITEMS = f"""
{_PAIRS} INSERT OR REPLACE INTO items SELECT ?2, substr(?1, p + 16, a), substr(?1, p + 16 + a, b) FROM pairs
"""  # noqa: S608  # parts of this module
_DELETE_ITEMS = f"""
{_PAIRS} DELETE FROM items WHERE tab = ?2 AND key IN (SELECT substr(?1, p + 16, a) FROM pairs)
"""  # noqa: S608  # parts of this module
_ADD_ENTRIES = f"""
{_PAIRS} INSERT INTO chunks
SELECT CAST(substr(?1, p + 16, a) AS INTEGER), substr(?1, p + 16 + a, b) FROM pairs WHERE true
ON CONFLICT (id) DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)
"""  # noqa: S608  # parts of this module
# In order, because insertion into a tree is then several times faster.
_ADD_KEYS = f"""
WITH RECURSIVE n(i) AS (
    SELECT 0 WHERE length(?1) > 0 UNION ALL SELECT i + 1 FROM n WHERE (i + 1) * {keys.ENTRY_SIZE} < length(?1)
)
INSERT OR IGNORE INTO keys
SELECT ?2, substr(?1, i * {keys.ENTRY_SIZE} + 1, {keys.ENTRY_SIZE}) AS entry FROM n ORDER BY entry
"""  # noqa: S608  # parts of this module
_PUT_QUEUES = """
INSERT OR REPLACE INTO queues SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]') FROM json_each(?1)
"""
_CRC = struct.Struct(">I")
_CACHED_CHUNKS = 1024
_CHUNK_BITS = 32


def pair(first: bytes, second: bytes) -> bytes:
    """Return one row of a blob."""
    return b"%08d%08d%b%b" % (len(first), len(second), first, second)


def item(table: bytes, key: bytes, value: bytes) -> bytes:
    """Return a table's key and value, with a CRC, as a row of a blob."""
    return pair(key, _CRC.pack(crc32(value, crc32(key, crc32(table)))) + value)


def chunk(number: int, chunk_number: int, entries: bytes) -> bytes:
    """Return entries of a queue as a row of a blob."""
    return pair(b"%d" % (number << _CHUNK_BITS | chunk_number), entries)


@dataclass(slots=True)
class IndexUpdate:
    """The changes of a checkpoint, up to `position` of the log; `time` (ms) is that of the last message before it."""

    position: int
    time: int
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: dict[bytes, bytes] = field(default_factory=dict)
    chunks: bytes = b""
    queues: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    keys: list[tuple[int, bytes]] = field(default_factory=list)
    periods: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: list[tuple[str, int]] = field(default_factory=list)
    gone_queues: list[int] = field(default_factory=list)
    first_chunks: list[tuple[int, int]] = field(default_factory=list)
    first_period: int = 0


class Index:
    """The index file. `commit` may run in a thread, everything else belongs to the loop."""

    def __init__(self, path: Path, damage: Damage) -> None:
        self._damage = damage
        self._writer = _connect(path)
        self._writer.executescript(_SCHEMA)
        self._reader = _connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._chunks: OrderedDict[int, bytes] = OrderedDict()
        # Number of commits that the event loop was notified of.
        self.version = 0

    @property
    def position(self) -> int | None:
        """Position of the log that the file reflects; None for a new file."""
        return self._meta("position")

    @property
    def time(self) -> int:
        """Store timestamp (ms) of the last message before that position."""
        return self._meta("time") or 0

    def _meta(self, name: str) -> int | None:
        rows = self._select("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def _select(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return all rows. Raises Corrupt."""
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise Corrupt(f"the index file cannot be read: {error}") from error

    def queues(self) -> Iterable[Queue]:
        """Yield all queues."""
        for number, topic, queue_id, first, after in self._select("SELECT * FROM queues ORDER BY number"):
            yield Queue(number, topic, queue_id, first, after, after, first_chunk=first // CHUNK)

    def dropped(self) -> dict[str, int]:
        """Return the positions of the log at which topics were dropped."""
        return dict(self._select("SELECT topic, position FROM dropped"))

    def periods(self) -> dict[int, keys.Period]:
        """Return the periods that have keys, without the keys."""
        rows = self._select("SELECT period, oldest, newest FROM periods")
        return {period: keys.Period(oldest, newest) for period, oldest, newest in rows}

    # Reading.

    def entry(self, queue: Queue, offset: int) -> Entry | None:
        """Return the entry of a queue offset within the bounds; None if it is damaged."""
        if offset >= queue.tail_start:
            return queue.in_tail(offset)
        start = offset % CHUNK * ENTRY_SIZE
        row = queue.number << _CHUNK_BITS | offset // CHUNK
        entries = self._chunks.get(row, b"")
        if len(entries) < start + ENTRY_SIZE:
            entries = self._chunk(row)
        return decode_entry(entries, start, offset) if len(entries) >= start + ENTRY_SIZE else None

    def _chunk(self, row: int) -> bytes:
        try:
            found = self._select("SELECT entries FROM chunks WHERE id = ?", (row,))
        except Corrupt as error:
            # Readers skip it like any damage.
            self._damage.report(("chunk", row), str(error))
            return b""
        entries = self._chunks[row] = found[0][0] if found else b""
        if len(self._chunks) > _CACHED_CHUNKS:
            self._chunks.popitem(last=False)
        return entries

    def key_positions(self, period: int, key: bytes, limit: int) -> list[int]:
        """Return the positions of at most `limit` messages of a period with a key's hash, newest first."""
        rows = self._select(
            "SELECT entry FROM keys WHERE period = ? AND entry >= ? AND entry <= ? ORDER BY entry DESC LIMIT ?",
            (period, key, key + b"\xff" * 8, limit),
        )
        return [keys.position_of(entry) for (entry,) in rows]

    def row(self, table: bytes, key: bytes) -> bytes | None:
        """Return a value of a table, or None. Raises Corrupt."""
        found = self._select("SELECT value FROM items WHERE tab = ? AND key = ?", (table, key))
        if not found:
            return None
        value = self._value(table, key, found[0][0])
        if value is None:
            raise Corrupt(f"the value of a key of table {table.decode()} is damaged")
        return value

    def has_row(self, table: bytes, key: bytes) -> bool:
        """Return whether a table has a key."""
        found = self._select("SELECT 1 FROM items WHERE tab = ? AND key = ?", (table, key))
        return bool(found)

    def rows(self, table: bytes, bound: bytes, count: int, inclusive: bool) -> list[tuple[bytes, bytes | None]]:
        """Return at most `count` keys of a table from a bound on, with their values; None for a damaged value."""
        beyond = "key >= ?" if inclusive else "key > ?"
        query = f"SELECT key, value FROM items WHERE tab = ? AND {beyond} ORDER BY key LIMIT ?"  # noqa: S608  # see above
        rows = self._select(query, (table, bound, count))
        return [(key, self._value(table, key, value)) for key, value in rows]

    def count(self, table: bytes) -> int:
        """Return the number of keys of a table."""
        count: int = self._select("SELECT count(*) FROM items WHERE tab = ?", (table,))[0][0]
        return count

    def _value(self, table: bytes, key: bytes, stored: bytes) -> bytes | None:
        value = stored[_CRC.size :]
        if stored[: _CRC.size] == _CRC.pack(crc32(value, crc32(key, crc32(table)))):
            return value
        self._damage.report((table, key), f"the value of a key of table {table.decode()} is damaged")
        return None

    # Writing.

    def commit(self, update: IndexUpdate) -> None:
        """Write an update durably, all of it or nothing."""
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            self._write(writer, update)
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _write(self, writer: sqlite3.Connection, update: IndexUpdate) -> None:
        for table, rows in update.puts.items():
            writer.execute(_PUT_ITEMS, (rows, table))
        for table, rows in update.deletes.items():
            writer.execute(_DELETE_ITEMS, (rows, table))
        writer.execute(_ADD_ENTRIES, (update.chunks,))
        writer.execute(_PUT_QUEUES, (orjson.dumps(update.queues).decode(),))
        for period, entries in update.keys:
            writer.execute(_ADD_KEYS, (entries, period))
        writer.executemany("INSERT OR REPLACE INTO periods VALUES (?, ?, ?)", update.periods)
        writer.executemany("INSERT OR REPLACE INTO dropped VALUES (?, ?)", update.dropped)
        for number in update.gone_queues:
            self._delete_chunks(writer, number, 1 << _CHUNK_BITS)
            writer.execute("DELETE FROM queues WHERE number = ?", (number,))
        for number, first in update.first_chunks:
            self._delete_chunks(writer, number, first)
        writer.execute("DELETE FROM keys WHERE period < ?", (update.first_period,))
        writer.execute("DELETE FROM periods WHERE period < ?", (update.first_period,))
        writer.execute("DELETE FROM dropped WHERE position < ?", (update.first_period * keys.PERIOD,))
        meta = (("position", update.position), ("time", update.time))
        writer.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

    def _delete_chunks(self, writer: sqlite3.Connection, number: int, before: int) -> None:
        low = number << _CHUNK_BITS
        writer.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (low, low + before))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16384", "busy_timeout = 10000"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection

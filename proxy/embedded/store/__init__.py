"""Message queues and tables in one directory: the storage of the broker.

A write is accepted immediately and durable a moment later, which is awaited separately (`Store.synced`), so that many
senders share one fsync. Positions in the log are commit log offsets.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from proxy.embedded.store.errors import (
    Corrupt,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageFull,
    StoreLocked,
    StoreUnusable,
    UnknownFormat,
)
from remoting.messages import StoredMessage

__all__ = [
    "Corrupt",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "Store",
    "StoreLocked",
    "StoreUnusable",
    "Table",
    "UnknownFormat",
]


# Maximum size of the records of one read in bytes.
MAX_SIZE = 16 * 1024 * 1024


class Table(Protocol):
    """An ordered map from bytes to bytes; its changes are as durable as the messages written next to them.

    A change that raises StorageFull, StorageFailed or StorageBusy has no effect.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None. Raises Corrupt."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""

    def delete(self, key: bytes) -> None:
        """Remove a key; a missing one is ignored."""

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `start` on with their values, ascending, read lazily; damaged values are skipped."""

    def __len__(self) -> int:
        """Return the number of keys. The first call counts them, later ones return a cached number."""


class Store(Protocol):
    """Message queues and tables. Calls are synchronous and do not wait for an fsync."""

    def append(self, message: StoredMessage) -> StoredMessage:
        """Write a message to its topic's queue.

        Returns it with queue offset, commit log offset and store timestamp (ms) set. Raises StorageFull, StorageFailed,
        and BodyError (remoting.errors) for a message that does not fit a record.
        """

    def append_all(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Write messages next to each other in the log, all or none."""

    def transaction(self) -> AbstractContextManager[None]:
        """Write all messages and changes of tables inside, or none, also after a crash.

        They are written at the end; leaving by an exception writes nothing. Reads inside do not return them yet. A
        nested transaction belongs to the outer one. There must be no await inside.
        """

    def when_written(self, effect: Callable[[], object]) -> None:
        """Call `effect` once the preceding changes are written: at the end of the transaction unless it fails, or now.

        For copies of a table in memory.
        """

    def synced(self) -> "asyncio.Future[None]":
        """Return a future that is done when all writes so far are durable as the sync policy promises.

        The future raises StorageFailed.
        """

    def read(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        """Return records (remoting.messages) from a queue offset on.

        At least one if there is one, at most `count` and about `size` bytes; none outside the bounds. Stops before a
        corrupt record; raises Corrupt if the first one is corrupt, with the offset to continue at.
        """

    def head(self, topic: str, queue_id: int, offset: int, size: int) -> bytes | None:
        """Return the first bytes of the record at a queue offset, without a check for damage; None if there is none.

        A reader of many times need not read the bodies, which may have megabytes. Raises StorageBusy.
        """

    def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        """Return the hash codes of the tags (Java's String.hashCode; 0 without a tag) from a queue offset on.

        A reader of few tags need not read the other messages.
        """

    def record(self, commit_log_offset: int) -> bytes | None:
        """Return the intact record that begins at a commit log offset, or None."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the queue offsets of the first message kept and one past the last."""

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the first queue offset stored at or after this time (ms); one past the last if there is none."""

    def by_key(self, topic: str, key: str, begin: int, end: int, count: int, size: int = MAX_SIZE) -> list[bytes]:
        """Return records with this unique key or one of this name, stored between two times (ms), newest first.

        At least one if there is one, at most `count` and about `size` bytes. The first 64 keys of a message count, and
        the newest 4,096 messages with a key in each 256 MiB of the log.
        """

    def queues(self, topic: str) -> Collection[int]:
        """Return the queues of a topic that were ever written to."""

    def topics(self) -> Collection[str]:
        """Return the topics that were ever written to."""

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues; written to again, they begin at 0. Raises StorageFull, StorageFailed."""

    def table(self, name: str) -> Table:
        """Return the table of this name."""

    def upkeep(self) -> None:
        """Do retention, checkpoints and fsyncs by interval. To be called about every second."""

    def close(self) -> None:
        """Make everything durable and release the directory."""

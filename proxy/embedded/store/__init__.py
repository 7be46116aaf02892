"""Message queues and tables in one directory: what the broker wants of its storage.

A write is accepted at once and durable a moment later, which is awaited apart (`Store.synced`), so
that many senders share one fsync. Positions in the log are commit log offsets.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from proxy.embedded.store.errors import (
    Corrupt,
    StorageError,
    StorageFailed,
    StorageFull,
    StoreLocked,
    UnknownFormat,
)
from remoting.messages import StoredMessage

__all__ = [
    "Corrupt",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "Store",
    "StoreLocked",
    "Table",
    "UnknownFormat",
]


class Table(Protocol):
    """An ordered map from bytes to bytes, as durable as the messages written around its changes.

    Changes raise StorageFull, StorageFailed, and then change nothing.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. Raises Corrupt."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""

    def delete(self, key: bytes) -> None:
        """Remove a key; nothing happens where it is not there."""

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on with their values, ascending, read as they are taken; damaged values are passed over."""

    def __len__(self) -> int:
        """The number of keys. The first call counts them, later ones know."""


class Store(Protocol):
    """Message queues and tables. Calls are synchronous and do not wait for the disk to be in sync."""

    def append(self, message: StoredMessage) -> StoredMessage:
        """Write a message to its topic's queue.

        Returned with queue offset, commit log offset and store timestamp (ms) set. Raises StorageFull, StorageFailed,
        and BodyError (remoting.errors) for a message that no record can hold.
        """

    def append_all(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """The same for several, one after the other in the log, all or none."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything written inside, messages and tables, is there after a crash or none of it.

        It is written at the end; leaving by an exception writes nothing. Reads inside do not see it yet. One inside
        another belongs to the outer one. There must be no await inside.
        """

    def synced(self) -> "asyncio.Future[None]":
        """Done when everything written so far is as durable as the sync policy promises. Raises StorageFailed."""

    def read(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        """Records (remoting.messages) from a queue offset on.

        At least one where there is one, at most `count` and about `size` bytes; none outside the bounds. Stops before
        a record that is corrupt; raises Corrupt where the first one is, with the offset to go on at.
        """

    def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        """The hash codes of the tags (Java's String.hashCode; 0 without a tag) from a queue offset on.

        So that whoever wants few tags need not read the rest.
        """

    def record(self, commit_log_offset: int) -> bytes | None:
        """The record at a commit log offset, if one begins there that is intact."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Queue offsets of the first message kept and one past the last."""

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first queue offset stored at or after this time (ms); one past the last if there is none."""

    def by_key(self, topic: str, key: str, begin: int, end: int, count: int) -> list[bytes]:
        """Records that have this unique key, or this among their keys, stored between two times; newest first."""

    def queues(self, topic: str) -> Collection[int]:
        """The queues of a topic that were ever written to."""

    def topics(self) -> Collection[str]:
        """The topics that were ever written to."""

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues; written to again, they begin at 0. Raises StorageFull, StorageFailed."""

    def table(self, name: str) -> Table:
        """The table of this name."""

    def upkeep(self) -> None:
        """Retention, checkpoints, fsyncs by interval. Call it about each second."""

    def close(self) -> None:
        """Make everything durable and give the directory back."""

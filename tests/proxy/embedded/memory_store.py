"""A store in memory: the model of the durable store, and the store of the broker's tests."""

import asyncio
import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from proxy.embedded.store import MAX_SIZE, StorageFull
from remoting import messages, properties
from remoting.messages import StoredMessage


class MemoryTable:
    """An ordered map. Changes inside a transaction take effect at its end."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._store.write(lambda: self._put(key, value))

    def _put(self, key: bytes, value: bytes) -> None:
        if key not in self._values:
            bisect.insort(self._keys, key)
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        self._store.write(lambda: self._delete(key))

    def _delete(self, key: bytes) -> None:
        if self._values.pop(key, None) is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        key = start
        while (index := bisect.bisect_left(self._keys, key)) < len(self._keys):
            yield self._keys[index], self._values[self._keys[index]]
            key = self._keys[index] + b"\0" if index < len(self._keys) and self._keys[index] >= key else key

    def __len__(self) -> int:
        return len(self._values)


class MemoryStore:
    """A store of lists and dicts.

    `full` makes writes fail, transactions at their end; `hold` makes `synced` wait until `sync`.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._log: dict[int, bytes] = {}
        self._end = 0
        self._queues: dict[tuple[str, int], list[int]] = {}
        self._tables: dict[str, MemoryTable] = {}
        self._changes: list[Callable[[], object]] | None = None
        self._ahead: dict[tuple[str, int], int] = {}
        self.full = False
        self.hold = False
        self._waiting: list[asyncio.Future[None]] = []

    # Writing.

    def write(self, change: Callable[[], None]) -> None:
        if self._changes is None:
            self._check_room()
            change()
        else:
            self._changes.append(change)

    def _check_room(self) -> None:
        if self.full:
            raise StorageFull("there is no room")

    def append(self, message: StoredMessage) -> StoredMessage:
        key = message.topic, message.queue_id
        offset = self._ahead.get(key, len(self._queues.get(key, ())))
        stored = replace(message, queue_offset=offset, commit_log_offset=self._end, store_timestamp=self._clock())
        record = messages.encode_message(stored)
        self.write(lambda: self._append(key, stored.commit_log_offset, record))
        self._end += len(record)
        if self._changes is not None:
            self._ahead[key] = offset + 1
        return stored

    def _append(self, key: tuple[str, int], position: int, record: bytes) -> None:
        self._log[position] = record
        self._queues.setdefault(key, []).append(position)

    def append_all(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        with self.transaction():
            return [self.append(message) for message in messages]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._changes is not None:
            yield
            return
        self._changes = []
        try:
            yield
            changes = self._changes
        finally:
            self._changes = None
            self._ahead.clear()
        if changes:
            self._check_room()
        for change in changes:
            change()

    def when_written(self, effect: Callable[[], object]) -> None:
        if self._changes is None:
            effect()
        else:
            self._changes.append(effect)

    def synced(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.hold:
            self._waiting.append(future)
        else:
            future.set_result(None)
        return future

    def sync(self, error: Exception | None = None) -> None:
        """Complete the waiting `synced` futures, with an error if given."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    # Reading.

    def read(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        if offset < 0:
            return []
        found: list[bytes] = []
        for position in self._queues.get((topic, queue_id), [])[offset : offset + count]:
            record = self._log[position]
            if found and sum(map(len, found)) + len(record) > size:
                break
            found.append(record)
        return found

    def head(self, topic: str, queue_id: int, offset: int, size: int) -> bytes | None:
        records = self.read(topic, queue_id, offset, 1, 1)
        return records[0][:size] if records else None

    def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        records = self.read(topic, queue_id, offset, count, 1 << 40)
        return [_hash(messages.decode_message(record).get(properties.TAGS) or "") for record in records]

    def record(self, commit_log_offset: int) -> bytes | None:
        return self._log.get(commit_log_offset)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, len(self._queues.get((topic, queue_id), ()))

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        queue = self._queues.get((topic, queue_id), [])
        times = [messages.decode_message(self._log[position]).store_timestamp for position in queue]
        return bisect.bisect_left(times, timestamp)

    def by_key(self, topic: str, key: str, begin: int, end: int, count: int, size: int = MAX_SIZE) -> list[bytes]:
        found = []
        for position in sorted(self._log, reverse=True):
            message = messages.decode_message(self._log[position])
            keys = {*(message.get(properties.KEYS) or "").split(), message.get(properties.UNIQ_CLIENT_MESSAGE_ID)}
            if message.topic == topic and key in keys and begin <= message.store_timestamp <= end:
                found.append(self._log[position])
        return found[:count]

    def queues(self, topic: str) -> Collection[int]:
        return [queue_id for name, queue_id in self._queues if name == topic]

    def topics(self) -> Collection[str]:
        return {name for name, _ in self._queues}

    def drop_topic(self, topic: str) -> None:
        def drop() -> None:
            for key in [key for key in self._queues if key[0] == topic]:
                del self._queues[key]

        self.write(drop)

    def table(self, name: str) -> MemoryTable:
        return self._tables.setdefault(name, MemoryTable(self))

    def upkeep(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value

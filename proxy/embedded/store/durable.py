"""The store on a disk: the log, its group commit, the index file and the tables."""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from proxy.embedded.store import directory as directories
from proxy.embedded.store import frame
from proxy.embedded.store.checkpointer import Checkpointer
from proxy.embedded.store.damage import Damage
from proxy.embedded.store.directory import DirectoryLock
from proxy.embedded.store.disk_reserve import DiskReserve
from proxy.embedded.store.errors import StorageError, StorageFailed, StorageFull
from proxy.embedded.store.files import Files
from proxy.embedded.store.frame import HEAD, Kind
from proxy.embedded.store.group_commit import GroupCommit
from proxy.embedded.store.index import IndexUpdate
from proxy.embedded.store.index_opening import open_index
from proxy.embedded.store.log import Log
from proxy.embedded.store.log_batch import LogBatch
from proxy.embedded.store.options import StoreOptions, SyncPolicy
from proxy.embedded.store.reader import StoreReader
from proxy.embedded.store.recovery import Recovery
from proxy.embedded.store.retention import remove_old_segments
from proxy.embedded.store.table import StoredTable
from remoting.messages import StoredMessage, encode_message

_T = TypeVar("_T")

# Maximum number of changes that wait for the index file, in multiples of StoreOptions.checkpoint_changes.
_MAX_PENDING_CHECKPOINTS = 16


class DurableStore:
    """A `Store` in a directory, which is created if necessary.

    `clock` returns milliseconds since 1970. The store belongs to one event loop; without a running loop, the work of
    its threads is done synchronously.

    Raises StoreLocked, UnknownFormat, StorageFailed.
    """

    def __init__(
        self, directory: Path, clock: Callable[[], int], options: StoreOptions | None = None, files: Files | None = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._options = options or StoreOptions()
        self._files = files or Files()
        self._batch: LogBatch | None = None
        self._damage = Damage()
        self._synced_at = clock()
        directories.create(directory, self._files)
        self._lock = DirectoryLock(directory)
        try:
            self._open()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError | sqlite3.Error):
                raise StorageFailed(f"the store in {directory} cannot be opened: {error}") from error
            raise

    def _open(self) -> None:
        directories.check_format(self._directory, self._files)
        directories.create(self._directory / "log", self._files)
        self._log = Log(self._directory / "log", self._files, self._options.segment_size)
        self._index, self._state = open_index(
            self._directory, self._log, self._damage, self._write_change, self._options.rebuild, self._clock()
        )
        self._reserve = DiskReserve(self._directory / "reserve", self._files, self._options.reserve)
        self._files.sync_directory(self._directory)
        position = self._index.position
        if position is None:
            # The store is new, or its index has to be rebuilt from the whole log.
            position = self._log.start
            self._index.commit(IndexUpdate(position, 0))
        self._commit = GroupCommit(self._log, self._options.sync, self._log_synced)
        self._checkpointer = Checkpointer(
            position, self._log, self._index, self._state, self._reserve, self._options, self._clock, self._commit.start
        )
        reader = StoreReader(self._log, self._index, self._state, self._damage)
        # Bound here, which saves a call per read.
        self.read = reader.read
        self.head = reader.head
        self.tag_codes = reader.tag_codes
        self.record = self._log.read_at
        self.bounds = reader.bounds
        self.offset_at = reader.offset_at
        self.by_key = reader.by_key
        self._recover()

    def _recover(self) -> None:
        self._checkpointer.restore_log_end()
        self._log.distrust(self._checkpointer.position)
        recovery = Recovery(self._log, self._state, self._damage)
        recovery.run(self._checkpointer.position, self._checkpointer.bound_memory)
        self.sync()

    @property
    def corrupt(self) -> int:
        """Number of damaged records, holes in the log and damaged values found."""
        return self._damage.count

    @property
    def failed(self) -> StorageFailed | None:
        """The error after which nothing is written until a restart; None without one."""
        return self._log.failed

    @property
    def full(self) -> bool:
        """Whether the disk has no room for messages; tables are written as long as the reserve lasts."""
        return self._reserve.spent or self._log.full

    @property
    def log_bytes(self) -> int:
        """Size of the log in bytes."""
        return self._log.size

    # Writing.

    def append(self, message: StoredMessage) -> StoredMessage:
        """Write a message to its topic's queue. Raises StorageFull, StorageFailed, StorageBusy, BodyError."""
        batch = self._batch
        if batch is not None:
            return self._append_to(batch, message)
        log = self._log
        self._check_room_for_messages()
        self._check_backlog()
        position = log.prepare()
        queue = self._state.queue(message.topic, message.queue_id)
        stored = message.updated(message.properties, queue.next if queue else 0, position, self._now())
        data = frame.encode(Kind.MESSAGE, encode_message(stored), position, log.seed)
        log.write(data, stored.store_timestamp)
        self._state.add(stored, len(data))
        self._checkpointer.start_if_needed()
        return stored

    def append_all(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Write messages next to each other in the log, all or none."""
        with self.transaction():
            return [self.append(message) for message in messages]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside or nothing, also after a crash.

        Raises StorageFull, StorageFailed, StorageBusy at its end.
        """
        if self._batch is not None:
            yield
            return
        batch = self._batch = LogBatch(self._prepare_for_tables())
        try:
            yield
        finally:
            self._batch = None
        self._write_batch(batch)

    def when_written(self, effect: Callable[[], object]) -> None:
        """Call `effect` at the end of the transaction unless it fails; without a transaction, now."""
        if self._batch is None:
            effect()
        else:
            self._batch.effects.append(effect)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues; written to again, they begin at 0."""
        if self._batch is not None:
            self._batch.drop_topic(topic)
        elif topic not in self._state.topics:
            return
        self._write(Kind.DROP_TOPIC, topic.encode(), lambda position: self._state.drop(topic, position))

    def _append_to(self, batch: LogBatch, message: StoredMessage) -> StoredMessage:
        queue_key = (message.topic, message.queue_id)
        offset = batch.offsets.get(queue_key)
        if offset is None:
            queue = None if message.topic in batch.dropped else self._state.queue(*queue_key)
            offset = queue.next if queue else 0
        stored = message.updated(message.properties, offset, batch.start + batch.size, self._now())
        payload = encode_message(stored)
        batch.offsets[queue_key] = offset + 1
        batch.add(Kind.MESSAGE, payload, lambda: self._state.add(stored, HEAD.size + len(payload)))
        return stored

    def _write_change(self, table: StoredTable, key: bytes, value: bytes | None) -> None:
        if value is None and self._batch is None and not table.has(key):
            return
        kind = Kind.DELETE if value is None else Kind.PUT
        payload = frame.put(table.encoded_name, key, value or b"")
        self._write(kind, payload, lambda position: self._state.change(table, key, value, position))

    def _write(self, kind: Kind, payload: bytes, effect: Callable[[int], None]) -> None:
        """Write one frame to the log, or add it to the transaction, and apply its effect to the state."""
        batch = self._batch
        if batch is not None:
            position = batch.start + batch.size
            batch.add(kind, payload, lambda: effect(position))
            return
        position = self._prepare_for_tables()
        data = frame.encode(kind, payload, position, self._log.seed)
        self._with_reserve(lambda: self._log.write(data))
        effect(position)
        self._checkpointer.start_if_many_changes()

    def _write_batch(self, batch: LogBatch) -> None:
        if batch.frames:
            data, now = batch.encoded(self._log.seed), self._now()
            if batch.offsets:
                self._check_room_for_messages()
                self._log.write(data, now)
            else:
                self._with_reserve(lambda: self._log.write(data, now))
        for effect in batch.effects:
            effect()
        self._checkpointer.start_if_many_changes()

    def _check_room_for_messages(self) -> None:
        """Raise StorageFull once the reserve is spent: messages do not take the room that is kept for tables."""
        if self._reserve.spent:
            raise StorageFull(f"no room for messages in {self._directory}; free some or add to it")

    def _with_reserve(self, write: Callable[[], _T]) -> _T:
        """Write to a table, into the room of the reserve if necessary. Raises StorageFull, StorageFailed."""
        try:
            return write()
        except StorageFull:
            if not self._reserve.give_up():
                raise
            return write()

    def _prepare_for_tables(self) -> int:
        self._check_backlog()
        return self._with_reserve(self._log.prepare)

    def _check_backlog(self) -> None:
        if self._state.pending > _MAX_PENDING_CHECKPOINTS * self._options.checkpoint_changes:
            self._checkpointer.start_soon()
            raise StorageFull(f"the index of {self._directory} has not been written for too long; see the log")

    def _now(self) -> int:
        """Return the time in ms, which never decreases within the log, so that the log can be searched by it."""
        return max(self._clock(), self._state.time)

    # Durability.

    def synced(self) -> "asyncio.Future[None]":
        """Return a future that is done when all writes so far are durable as the sync policy promises.

        The future raises StorageFailed.
        """
        return self._commit.synced()

    def sync(self) -> None:
        """Make everything durable before returning. Raises StorageFailed."""
        self._commit.run()

    def _log_synced(self) -> None:
        """Record in the log how far it is durable, for the next start."""
        self._synced_at = self._clock()
        self._checkpointer.log_synced()
        try:
            position = self._log.prepare()
            mark = frame.encode(Kind.MARK, frame.mark(self._log.synced), position, self._log.seed)
            self._log.write(mark, counts=False)
        except StorageError:
            # A mark only helps to distinguish damage from an unfinished write.
            return

    def checkpoint(self) -> None:
        """Write the index file before returning. Raises StorageFailed."""
        self.sync()
        self._checkpointer.run()

    def upkeep(self) -> None:
        """Do retention, checkpoints and fsyncs by interval. To be called about every second."""
        now = self._clock()
        options = self._options
        if options.sync is SyncPolicy.INTERVAL and now - self._synced_at >= options.sync_interval:
            self._commit.start()
        if self._log.failed is not None:
            return
        remove_old_segments(self._log, options, self._checkpointer.position, now)
        self._reserve.fill()
        if not self._reserve.spent:
            self._log.look_for_room()
        self._checkpointer.start_if_stale(now)

    # Queues and tables.

    def queues(self, topic: str) -> Collection[int]:
        """Return the queues of a topic that were ever written to."""
        return self._state.topics.get(topic, {}).keys()

    def topics(self) -> Collection[str]:
        """Return the topics that were ever written to."""
        return self._state.topics.keys()

    def table(self, name: str) -> StoredTable:
        """Return the table of this name."""
        return self._state.table(name)

    def close(self) -> None:
        """Make everything durable and release the directory."""
        try:
            if self._log.failed is None:
                self.checkpoint()
        finally:
            self._commit.close()
            self._checkpointer.close()
            self._index.close()
            self._log.close()
            self._lock.release()

"""The store on a disk: log, group commit, index file and what is between them."""

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from proxy.embedded.store import format as layout
from proxy.embedded.store import frame, keys
from proxy.embedded.store.background_worker import Background
from proxy.embedded.store.damage import Damage
from proxy.embedded.store.disk_reserve import DiskReserve
from proxy.embedded.store.errors import Corrupt, StorageFailed, StorageFull
from proxy.embedded.store.files import Files
from proxy.embedded.store.frame import HEAD, Kind
from proxy.embedded.store.group_commit import GroupCommit, SyncPolicy
from proxy.embedded.store.index import Batch, Index
from proxy.embedded.store.lock import DirectoryLock
from proxy.embedded.store.log import Log
from proxy.embedded.store.log_batch import LogBatch
from proxy.embedded.store.options import StoreOptions
from proxy.embedded.store.queue import Entry, Queue
from proxy.embedded.store.recovery import Recovery
from proxy.embedded.store.state import State
from proxy.embedded.store.table import StoredTable
from remoting import properties
from remoting.errors import BodyError
from remoting.messages import StoredMessage, decode_message, encode_message

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

# How much may wait for the index file, in checkpoints, before nothing more is taken.
_TIMEOUT = 16
_RETRY = 5_000


class DurableStore:
    """A `Store` in a directory, which is made where there is none.

    `clock` gives milliseconds since 1970. Belongs to one loop; without a running loop what threads would do is done at
    once.

    Raises StoreLocked, UnknownFormat, StorageFailed.
    """

    def __init__(
        self, directory: Path, clock: Callable[[], int], options: StoreOptions | None = None, files: Files | None = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._options = options or StoreOptions()
        self._files = files or Files()
        self._unit: LogBatch | None = None
        self._damage = Damage()
        self._due = False
        self._retry_at = 0
        self._checkpointed_at = clock()
        self._synced_at = clock()
        _make(directory, self._files)
        self._lock = DirectoryLock(directory)
        try:
            self._open()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError | sqlite3.Error):
                raise StorageFailed(f"the store in {directory} cannot be opened: {error}") from error
            raise

    def _open(self) -> None:
        layout.check(self._directory, self._files)
        _make(self._directory / "log", self._files)
        self._log = Log(self._directory / "log", self._files, self._options.segment_size)
        self._index, self._state = self._open_index()
        self._reserve = DiskReserve(self._directory / "reserve", self._files, self._options.reserve)
        self._files.sync_directory(self._directory)
        position = self._index.position
        if position is None:
            # Either there is nothing yet, or all that there is has to be gone through again.
            position = self._log.start
            self._index.commit(Batch(position, 0))
        self._applied = position
        self._checkpoint = Background("gantry-checkpoint")
        self._commit = GroupCommit(self._log, self._options.sync, self._synced)
        self._recover()

    @property
    def corrupt(self) -> int:
        """How many damaged records, holes in the log and values were found."""
        return self._damage.count

    @property
    def failed(self) -> StorageFailed | None:
        """Why nothing is written any more, until a restart; None: all is well."""
        return self._log.failed

    @property
    def full(self) -> bool:
        """The disk has no room for messages; what is in tables is written as long as the reserve lasts."""
        return self._reserve.spent

    @property
    def log_bytes(self) -> int:
        """How large the log is."""
        return self._log.size

    # Writing.

    def append(self, message: StoredMessage) -> StoredMessage:
        """Write a message to its topic's queue. Raises StorageFull, StorageFailed, BodyError."""
        unit = self._unit
        if unit is not None:
            return self._append_to(unit, message)
        log = self._log
        self._refuse_when_full()
        position = self._room()
        queue = self._state.queue(message.topic, message.queue_id)
        stored = self._stamped(message, queue.next if queue else 0, position)
        data = frame.encode(Kind.MESSAGE, encode_message(stored), position, log.seed)
        log.write(data, stored.store_timestamp)
        self._state.add(stored, len(data))
        if self._log.end - self._applied > self._options.checkpoint_bytes or self._is_full():
            self._urge()
        return stored

    def append_all(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """The same for several, one after the other in the log, all or none."""
        with self.transaction():
            return [self.append(message) for message in messages]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything written inside is there after a crash or none of it. Its end raises StorageFull, StorageFailed."""
        if self._unit is not None:
            yield
            return
        unit = self._unit = LogBatch(self._room_for_tables())
        try:
            yield
        finally:
            self._unit = None
        self._write_unit(unit)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues; written to again, they begin at 0."""
        if self._unit is not None:
            self._unit.dropped.add(topic)
            self._unit.offsets = {where: offset for where, offset in self._unit.offsets.items() if where[0] != topic}
        elif topic not in self._state.topics:
            return
        self._write(Kind.DROP_TOPIC, topic.encode(), lambda position: self._state.drop(topic, position))

    def _append_to(self, unit: LogBatch, message: StoredMessage) -> StoredMessage:
        where = (message.topic, message.queue_id)
        offset = unit.offsets.get(where)
        if offset is None:
            queue = None if message.topic in unit.dropped else self._state.queue(*where)
            offset = queue.next if queue else 0
        stored = self._stamped(message, offset, unit.start + unit.size)
        payload = encode_message(stored)
        unit.offsets[where] = offset + 1
        unit.add(Kind.MESSAGE, payload, lambda: self._state.add(stored, HEAD.size + len(payload)))
        return stored

    def _write_change(self, table: StoredTable, key: bytes, value: bytes | None) -> None:
        if value is None and self._unit is None and not table.has(key):
            return
        kind = Kind.DELETE if value is None else Kind.PUT
        payload = frame.put(table.encoded_name, key, value or b"")
        self._write(kind, payload, lambda position: self._state.change(table, key, value, position))

    def _write(self, kind: Kind, payload: bytes, effect: Callable[[int], None]) -> None:
        """Put one frame into the log, or into the transaction, and have done what it says."""
        unit = self._unit
        if unit is not None:
            position = unit.start + unit.size
            unit.add(kind, payload, lambda: effect(position))
            return
        position = self._room_for_tables()
        data = frame.encode(kind, payload, position, self._log.seed)
        self._spare(lambda: self._log.write(data))
        effect(position)
        if self._is_full():
            self._urge()

    def _write_unit(self, unit: LogBatch) -> None:
        if not unit.frames:
            return
        data, now = unit.encoded(self._log.seed), self._now()
        if unit.offsets:
            self._refuse_when_full()
            self._log.write(data, now)
        else:
            self._spare(lambda: self._log.write(data, now))
        for effect in unit.effects:
            effect()
        if self._is_full():
            self._urge()

    def _refuse_when_full(self) -> None:
        """Messages do not take the room that is kept for tables."""
        if self._reserve.spent:
            raise StorageFull(f"no room for messages in {self._directory}; free some or add to it")

    def _spare(self, write: Callable[[], _T]) -> _T:
        """Write to a table, from the reserve if it must be. Raises StorageFull, StorageFailed."""
        try:
            return write()
        except StorageFull:
            if not self._reserve.give_up():
                raise
            return write()

    def _room(self) -> int:
        """Where the log goes on."""
        self._check_backlog()
        return self._log.prepare()

    def _room_for_tables(self) -> int:
        self._check_backlog()
        return self._spare(self._log.prepare)

    def _check_backlog(self) -> None:
        if self._state.pending > _TIMEOUT * self._options.checkpoint_changes:
            self._urge()
            raise StorageFull(f"the index of {self._directory} has not been written for too long; see the log")

    def _stamped(self, message: StoredMessage, offset: int, position: int) -> StoredMessage:
        # What dataclasses.replace does, at half the price.
        return StoredMessage(
            topic=message.topic,
            body=message.body,
            properties=message.properties,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=offset,
            commit_log_offset=position,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=self._now(),
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            body_crc=message.body_crc,
        )

    def _now(self) -> int:
        """The time, which in the log never goes back, so that it can be searched by."""
        return max(self._clock(), self._state.time)

    # Making it durable.

    def synced(self) -> "asyncio.Future[None]":
        """Done when everything written so far is as durable as the sync policy promises. Raises StorageFailed."""
        return self._commit.synced()

    def sync(self) -> None:
        """Make everything durable before returning. Raises StorageFailed."""
        self._commit.run()

    def _is_full(self) -> bool:
        return self._state.pending > self._options.checkpoint_changes

    def _urge(self) -> None:
        """Have a checkpoint made as soon as the log is durable."""
        if self._checkpoint.busy or self._clock() < self._retry_at:
            return
        self._due = True
        if self._log.synced >= self._log.needed:
            self._begin_checkpoint()
        else:
            self._commit.start()

    def _synced(self) -> None:
        """The log is durable a bit further: say so in it, for the next start."""
        self._synced_at = self._clock()
        if self._due and not self._checkpoint.busy:
            self._begin_checkpoint()
        try:
            position = self._log.prepare()
            self._log.write(self._mark(position), counts=False)
        except (StorageFull, StorageFailed):
            # It only helps to tell damage from an unfinished write.
            return

    def _mark(self, position: int) -> bytes:
        return frame.encode(Kind.MARK, frame.mark(self._log.synced), position, self._log.seed)

    # Checkpoints.

    def _begin_checkpoint(self) -> None:
        self._due = False
        batch = self._state.stage(min(self._log.synced, self._log.needed), self._log.start)
        self._checkpoint.start(
            lambda: self._index.commit(batch), lambda future: self._end_checkpoint(future, batch.position)
        )

    def _end_checkpoint(self, future: "Future[object]", position: int) -> None:
        error = future.exception()
        if error is not None:
            _log.error("the index of %s cannot be written now: %s", self._directory, error)
            self._state.unstage()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL and self._reserve.give_up():
                # At once: the reserve is made again when nobody takes its room.
                self._begin_checkpoint()
                return
            self._retry_at = self._clock() + _RETRY
            return
        self._state.settle()
        self._index.version += 1
        self._applied = position
        self._checkpointed_at = self._clock()

    def checkpoint(self) -> None:
        """Write the index file and return when it is. Raises StorageFailed."""
        self.sync()
        self._checkpoint.wait()
        self._begin_checkpoint()
        self._checkpoint.wait()

    # Upkeep.

    def upkeep(self) -> None:
        """Retention, checkpoints, fsyncs by interval. Call it about each second."""
        now = self._clock()
        options = self._options
        if options.sync is SyncPolicy.INTERVAL and now - self._synced_at >= options.sync_interval:
            self._commit.start()
        if self._log.failed is not None:
            return
        self._retire(now)
        self._reserve.fill()
        stale = now - self._checkpointed_at >= options.checkpoint_age and self._log.needed > self._applied
        if stale or self._log.start != self._state.log_start:
            self._urge()

    def _retire(self, now: int) -> None:
        """Remove the segments that are too old or too many, once the index file does not need them."""
        log, options = self._log, self._options
        size, count = log.size, 0
        oldest = None if options.retention_time is None else now - options.retention_time
        for each in log.segments[:-1]:
            too_much = options.retention_size is not None and size > options.retention_size
            too_old = oldest is not None and each.newest < oldest
            if each.end > self._applied or not (too_much or too_old):
                break
            size -= each.size
            count += 1
        try:
            if count:
                log.trim(count)
            if oldest is not None and log.segments and 0 < log.segments[-1].newest < oldest:
                # So that it can go next time.
                log.roll(log.end)
        except (OSError, StorageFull, StorageFailed) as error:
            _log.error("old messages in %s cannot be removed: %s", self._directory, error)

    # Reading.

    def read(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        """Records from a queue offset on. Raises Corrupt with the offset to go on at."""
        queue = self._state.queue(topic, queue_id)
        if queue is None or not self._state.first(queue, self._log.start) <= offset < queue.next:
            return []
        records: list[bytes] = []
        read = 0
        for at in range(offset, min(offset + count, queue.next)):
            entry = self._index.entry(queue, at)
            record = self._log.read(entry.position, entry.size) if entry and entry.size else None
            if record is None:
                if records:
                    break
                raise self._corrupt(queue, at, entry)
            read += len(record)
            if read > size and records:
                break
            records.append(record)
        return records

    def _corrupt(self, queue: Queue, offset: int, entry: Entry | None) -> Corrupt:
        """What to say of a message that is not what was written; counted and logged once."""
        lost = entry is not None and entry.size == 0
        after = offset + 1
        while entry is not None and entry.size == 0 and after < queue.next:
            # All that was lost at once.
            entry = self._index.entry(queue, after)
            after += entry is not None and entry.size == 0
        position = entry.position if entry else None
        text = f"message {offset} of queue {queue.queue_id} of topic {queue.topic} is damaged, at {position} of the log"
        if not lost:
            # What was lost was reported when that was found.
            self._damage.report((queue.topic, queue.queue_id, offset), text)
        return Corrupt(text, position, after)

    def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        """The hash codes of the tags from a queue offset on."""
        queue = self._state.queue(topic, queue_id)
        if queue is None or not self._state.first(queue, self._log.start) <= offset < queue.next:
            return []
        entries = (self._index.entry(queue, at) for at in range(offset, min(offset + count, queue.next)))
        return [entry.tag_code if entry else 0 for entry in entries]

    def record(self, commit_log_offset: int) -> bytes | None:
        """The record at a commit log offset, if one begins there that is intact."""
        return self._log.read_at(commit_log_offset)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Queue offsets of the first message kept and one past the last."""
        queue = self._state.queue(topic, queue_id)
        return (self._state.first(queue, self._log.start), queue.next) if queue else (0, 0)

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first queue offset stored at or after this time (ms)."""
        queue = self._state.queue(topic, queue_id)
        if queue is None:
            return 0
        self._state.first(queue, self._log.start)
        return self._state.at_time(queue, timestamp)

    def by_key(self, topic: str, key: str, begin: int, end: int, count: int) -> list[bytes]:
        """Records with a key, stored between two times, newest first."""
        wanted = keys.digest(topic, key)
        records: list[bytes] = []
        for period in self._state.keys.between(begin, end):
            found = {*self._state.keys.periods[period].find(wanted), *self._index.key_positions(period, wanted)}
            for position in sorted(found, reverse=True):
                if len(records) >= count:
                    return records
                record = self._log.read_at(position) if position > self._state.dropped.get(topic, -1) else None
                if record is not None and _has_key(record, topic, key, begin, end):
                    records.append(record)
        return records

    def queues(self, topic: str) -> Collection[int]:
        """The queues of a topic that were ever written to."""
        return self._state.topics.get(topic, {}).keys()

    def topics(self) -> Collection[str]:
        """The topics that were ever written to."""
        return self._state.topics.keys()

    def table(self, name: str) -> StoredTable:
        """The table of this name."""
        return self._state.table(name)

    # Beginning and end.

    def _open_index(self) -> tuple[Index, State]:
        path = self._directory / "index.db"
        try:
            index = Index(path, self._damage)
            known = index.position is not None
            state = State(index, self._write_change)
        except (sqlite3.DatabaseError, Corrupt) as error:
            if isinstance(error.__cause__ or error, sqlite3.OperationalError):
                raise StorageFailed(f"{path} cannot be read: {error}") from error
            _log.error("%s is damaged and is made anew from the log: %s", path, error)
            for each in self._directory.glob("index.db*"):
                each.rename(each.with_name(f"damaged-{self._clock()}-{each.name}"))
            index, known = Index(path, self._damage), False
            state = State(index, self._write_change)
        if not known and self._log.start and not self._options.rebuild:
            index.close()
            raise StorageFailed(
                f"{path} is lost, and the log begins at {self._log.start}: messages can be found again, what was in "
                "tables (offsets, timers, groups) before that cannot; start with rebuild to go on without it"
            )
        return index, state

    def _recover(self) -> None:
        log = self._log
        if self._applied > log.end:
            _log.error("the log in %s lacks its last %d bytes", self._directory, self._applied - log.end)
            log.roll(self._applied)
        log.distrust(self._applied)
        recovery = Recovery(log, self._state, self._damage)
        recovery.run(self._applied, self._pause)
        self.sync()

    def _pause(self, position: int) -> None:
        """Between frames of the log at a start: keep what is in memory bounded."""
        if self._is_full():
            if self._log.synced < position:
                self._log.synced, work = self._log.flush()
                work()
            self._index.commit(self._state.stage(position, self._log.start))
            self._state.settle()
            self._index.version += 1
            self._applied = position

    def close(self) -> None:
        """Make everything durable and give the directory back."""
        try:
            if self._log.failed is None:
                self.checkpoint()
        finally:
            self._commit.close()
            self._checkpoint.close()
            self._index.close()
            self._log.close()
            self._lock.release()


def _make(directory: Path, files: Files) -> None:
    """A directory that is there after a crash too."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
        files.sync_directory(directory.parent)


def _has_key(record: bytes, topic: str, key: str, begin: int, end: int) -> bool:
    try:
        message = decode_message(record)
    except BodyError:
        return False
    return (
        message.topic == topic
        and begin <= message.store_timestamp <= end
        and (
            message.get(properties.UNIQ_CLIENT_MESSAGE_ID) == key or key in (message.get(properties.KEYS) or "").split()
        )
    )

"""The state that follows from the log: queues, keys and tables.

The index file contains it as of a checkpoint, memory the changes since.
"""

from collections import deque
from collections.abc import Callable, Collection

from proxy.embedded.store import index as rows
from proxy.embedded.store import keys
from proxy.embedded.store.index import Index, IndexUpdate
from proxy.embedded.store.keys import PendingKeys
from proxy.embedded.store.queue import CHUNK, Entry, Queue, tag_code
from proxy.embedded.store.table import StoredTable, Write
from remoting import properties
from remoting.messages import StoredMessage

# Maximum number of indexed keys of a message, besides its unique key. Each takes as much space as a message without
# keys.
MAX_KEYS = 64
# Minimum size of a message in the log, which bounds the number of messages lost in a hole.
MIN_MESSAGE_SIZE = 96


class State:
    """The queues, keys and tables of a store. Changes are applied after they were written to the log."""

    def __init__(self, index: Index, write: Write) -> None:
        self._index = index
        self._write = write
        self.time = index.time
        self.topics: dict[str, dict[int, Queue]] = {}
        self._queues: dict[tuple[str, int], Queue] = {}
        self._last_number = 0
        for queue in index.queues():
            self._enter(queue)
        self.tables: dict[str, StoredTable] = {}
        self.keys = PendingKeys()
        self.keys.periods = index.periods()
        self.dropped = index.dropped()
        # Since the last checkpoint: messages, and their keys beyond two of each, which ordinary messages have.
        self._messages = 0
        self._changes: deque[tuple[int, StoredTable, bytes, bytes | None]] = deque()
        self._touched: dict[Queue, None] = {}
        self._drops: list[tuple[int, str, list[Queue]]] = []
        # The start of the log at the last checkpoint; unknown at a start of the store.
        self.log_start = 0
        # The checkpoint in progress.
        self._staged: _Staged | None = None

    @property
    def pending(self) -> int:
        """Number of messages and changes that are not in the index file; of messages with many keys, these count."""
        return self._messages + len(self._changes)

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        return self._queues.get((topic, queue_id))

    def table(self, name: str) -> StoredTable:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = StoredTable(name, self._index, self._write)
        return table

    # Changes.

    def add(self, message: StoredMessage, size: int) -> None:
        """Add a message whose frame has this size, at its commit log offset."""
        topic, queue_id = message.topic, message.queue_id
        position, time = message.commit_log_offset, message.store_timestamp
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._new_queue(topic, queue_id, message.queue_offset, position)
        if queue.next != message.queue_offset:
            queue.lose(message.queue_offset, position, time)
        queue.add(position, size, tag_code(message.get(properties.TAGS)), time)
        self._touched[queue] = None
        self.time = time
        names = _keys_of(message)
        self._messages += max(len(names) - 1, 1)
        self.keys.add(topic, names, position, time)

    def change(self, table: StoredTable, key: bytes, value: bytes | None, position: int) -> None:
        """Change a table's key (None: delete it), as written at a position of the log."""
        self._changes.append((position, table, key, value))
        table.apply(key, value)

    def drop(self, topic: str, position: int) -> None:
        """Drop a topic, as written at a position of the log."""
        queues = self.topics.pop(topic, {})
        for queue_id, queue in queues.items():
            del self._queues[topic, queue_id]
            queue.dropped = position
        self._drops.append((position, topic, list(queues.values())))
        self.dropped[topic] = position

    def lose(self, position: int, size: int) -> None:
        """Skip the offsets of the messages that a hole of the log may have contained.

        Every queue whose last message is before the hole continues as many offsets later as messages may have been
        lost: consumers that have received one of these must not mistake another message for it.
        """
        for queue in self._queues.values():
            last = self._index.entry(queue, queue.next - 1) if queue.next else None
            if last is None or last.position < position:
                queue.lose(queue.next + size // MIN_MESSAGE_SIZE, position, self.time)
                self._touched[queue] = None

    def _new_queue(self, topic: str, queue_id: int, offset: int, position: int) -> Queue:
        # Rows of entries begin at multiples of their size, also if an index is rebuilt from the middle of a queue.
        begin = offset // CHUNK * CHUNK
        queue = Queue(self._last_number + 1, topic, queue_id, begin, begin, begin)
        queue.lose(offset, position, 0)
        queue.first = offset
        self._enter(queue)
        return queue

    def _enter(self, queue: Queue) -> None:
        self._last_number = max(self._last_number, queue.number)
        self._queues[queue.topic, queue.queue_id] = queue
        self.topics.setdefault(queue.topic, {})[queue.queue_id] = queue

    # Bounds.

    def first(self, queue: Queue, log_start: int) -> int:
        """Return the first queue offset whose message is still in the log."""
        if queue.trimmed != log_start:
            first = self._search(queue, queue.first, lambda entry: entry.position >= log_start)
            queue.moved |= first != queue.first
            queue.first, queue.trimmed = first, log_start
        return queue.first

    def at_time(self, queue: Queue, timestamp: int) -> int:
        """Return the first queue offset stored at or after a time (ms)."""
        return self._search(queue, queue.first, lambda entry: entry.time >= timestamp)

    def _search(self, queue: Queue, low: int, reached: Callable[[Entry], bool]) -> int:
        """Return the first queue offset from which on `reached` is true."""
        high = queue.next
        while low < high:
            middle = (low + high) // 2
            probe, entry = middle, self._index.entry(queue, middle)
            while entry is None and probe + 1 < high:
                # Damaged: the next intact entry is used instead.
                probe += 1
                entry = self._index.entry(queue, probe)
            if entry is None or reached(entry):
                high = middle
            else:
                low = probe + 1
        return low

    # Checkpoints.

    def stage(self, position: int, log_start: int) -> IndexUpdate:
        """Return the changes before a position of the log, for the index file.

        One at a time: commit_staged or discard_staged must follow.
        """
        staged = self._staged = _Staged(self._messages)
        update = IndexUpdate(position, self.time)
        self._stage_tables(position, staged, update)
        self._stage_queues(position, staged, update, log_start)
        for number, period in self.keys.periods.items():
            if period.entries:
                entries = period.staged(position)
                staged.keys.append((number, len(entries)))
                update.keys.append((number, entries))
                update.periods.append((number, period.oldest, period.newest))
        if log_start != self.log_start:
            update.first_period = log_start // keys.PERIOD
        staged.log_start = log_start
        return update

    def _stage_tables(self, position: int, staged: "_Staged", update: IndexUpdate) -> None:
        latest: dict[StoredTable, dict[bytes, bytes | None]] = {}
        deleted_later = []
        for at, table, key, value in self._changes:
            if at < position:
                latest.setdefault(table, {})[key] = value
                staged.changes += 1
            elif value is None:
                deleted_later.append((table, key))
        for table, changes in latest.items():
            table.stage(changes)
            staged.tables.append(table)
            name = table.encoded_name
            puts = [rows.item(name, key, value) for key, value in changes.items() if value is not None]
            deletes = [rows.pair(key, b"") for key, value in changes.items() if value is None]
            if puts:
                update.puts[name] = b"".join(puts)
            if deletes:
                update.deletes[name] = b"".join(deletes)
        for table, key in deleted_later:
            table.mark_deleted(key)

    def _stage_queues(self, position: int, staged: "_Staged", update: IndexUpdate, log_start: int) -> None:
        for at, topic, queues in self._drops:
            if at < position:
                staged.drops += 1
                update.dropped.append((topic, at))
                update.gone_queues += [queue.number for queue in queues]
        if log_start != self.log_start:
            self._trim(log_start)
        chunks = []
        for queue in self._touched:
            if queue.dropped is not None and queue.dropped < position:
                staged.queues.append((queue, queue.next))
                continue
            until = queue.staged(position)
            staged.queues.append((queue, until))
            chunks += [rows.chunk(queue.number, number, entries) for number, entries in queue.chunks(until)]
            if until > queue.tail_start or queue.moved:
                update.queues.append((queue.number, queue.topic, queue.queue_id, min(queue.first, until), until))
            if queue.first_chunk < queue.first // CHUNK:
                update.first_chunks.append((queue.number, queue.first // CHUNK))
        update.chunks = b"".join(chunks)

    def _trim(self, log_start: int) -> None:
        """Include every queue whose first messages were removed in the checkpoint."""
        for queue in self._queues.values():
            before = queue.first
            if self.first(queue, log_start) != before or queue.moved:
                queue.moved = True
                self._touched[queue] = None

    def commit_staged(self) -> None:
        """Remove the staged changes from memory, which are in the index file."""
        staged = self._staged
        assert staged is not None
        for table in staged.tables:
            table.commit_staged()
        for queue, until in staged.queues:
            if until > queue.tail_start:
                queue.discard(until)
            queue.moved = False
            queue.first_chunk = queue.first // CHUNK
            if queue.tail is None:
                self._touched.pop(queue, None)
        for period, size in staged.keys:
            self.keys.discard(period, size)
        for _ in range(staged.changes):
            self._changes.popleft()
        del self._drops[: staged.drops]
        self._messages -= staged.messages
        self.log_start = staged.log_start
        self.keys.trim(staged.log_start)
        self.dropped = {topic: at for topic, at in self.dropped.items() if at >= staged.log_start}
        self._staged = None

    def discard_staged(self) -> None:
        """Keep the staged changes for the next checkpoint, because the index file could not be written."""
        staged = self._staged
        assert staged is not None
        for table in staged.tables:
            table.discard_staged()
        self._staged = None


class _Staged:
    """The changes that the checkpoint in progress includes."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.tables: list[StoredTable] = []
        self.changes = 0
        self.queues: list[tuple[Queue, int]] = []
        self.keys: list[tuple[int, int]] = []
        self.drops = 0
        self.log_start = 0


def _keys_of(message: StoredMessage) -> Collection[str]:
    """Return the keys that a message can be found by: its keys and its unique key (RocketMQ's IndexService)."""
    unique = message.get(properties.UNIQ_CLIENT_MESSAGE_ID)
    text = message.get(properties.KEYS)
    if not text:
        return (unique,) if unique else ()
    # The last item is the rest of the text.
    names = dict.fromkeys(text.split(None, MAX_KEYS)[:MAX_KEYS])
    if unique:
        names[unique] = None
    return names

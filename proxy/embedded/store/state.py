"""What follows from the log: queues, keys, tables. The index file has it as of a checkpoint, memory what came after."""

from collections import deque
from collections.abc import Callable

from proxy.embedded.store import index as batches
from proxy.embedded.store import keys
from proxy.embedded.store.index import Batch, Index
from proxy.embedded.store.keys import PendingKeys
from proxy.embedded.store.queue import CHUNK, Entry, Queue
from proxy.embedded.store.table import StoredTable
from proxy.embedded.store.tags import tag_code
from remoting import properties
from remoting.messages import StoredMessage

# The smallest thing that a message can be in the log, for how many may have been lost in a hole.
SMALLEST_MESSAGE = 96


class State:
    """The queues, keys and tables of a store. What is told to it is in the log already."""

    def __init__(self, index: Index, write: Callable[[StoredTable, bytes, bytes | None], None]) -> None:
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
        # Since the last checkpoint.
        self._messages = 0
        self._changes: deque[tuple[int, StoredTable, bytes, bytes | None]] = deque()
        self._touched: dict[Queue, None] = {}
        self._drops: list[tuple[int, str, list[Queue]]] = []
        # Where the log began at the last one; unknown at a start.
        self.log_start = 0
        # Of the checkpoint under way.
        self._staged: _Staged | None = None

    @property
    def pending(self) -> int:
        """How much the index file does not have."""
        return self._messages + len(self._changes)

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        return self._queues.get((topic, queue_id))

    def table(self, name: str) -> StoredTable:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = StoredTable(name, self._index, self._write)
        return table

    # What happened.

    def add(self, message: StoredMessage, size: int) -> None:
        """A message, in a frame of this size, at its commit log offset."""
        topic, queue_id = message.topic, message.queue_id
        position, time = message.commit_log_offset, message.store_timestamp
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._new_queue(topic, queue_id, message.queue_offset, position)
        if queue.next != message.queue_offset:
            queue.lose(message.queue_offset, position, time)
        tag = message.get(properties.TAGS)
        queue.add(position, size, tag_code(tag) if tag else 0, time)
        self._touched[queue] = None
        self._messages += 1
        self.time = time
        names = _keys_of(message)
        self.keys.add(topic, names, position, time)

    def change(self, table: StoredTable, key: bytes, value: bytes | None, position: int) -> None:
        """A table's key was changed at a position of the log."""
        self._changes.append((position, table, key, value))
        table.apply(key, value)

    def drop(self, topic: str, position: int) -> None:
        """A topic was dropped."""
        queues = self.topics.pop(topic, {})
        for queue_id, queue in queues.items():
            del self._queues[topic, queue_id]
            queue.dropped = position
        self._drops.append((position, topic, list(queues.values())))
        self.dropped[topic] = position

    def lose(self, position: int, size: int) -> None:
        """There was a hole in the log, and nothing after it says how far a queue had come.

        So every queue whose last message lies before it goes on as many offsets later as messages may have been lost:
        consumers that have seen one of these must not take another for it.
        """
        for queue in self._queues.values():
            last = self._index.entry(queue, queue.next - 1) if queue.next else None
            if last is None or last.position < position:
                queue.lose(queue.next + size // SMALLEST_MESSAGE, position, self.time)
                self._touched[queue] = None

    def _new_queue(self, topic: str, queue_id: int, offset: int, position: int) -> Queue:
        # Rows of entries begin at multiples of their size, also where an index is rebuilt from the middle of a queue.
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
        """The first queue offset whose message the log still has."""
        if queue.trimmed != log_start:
            first = self._search(queue, queue.first, lambda entry: entry.position >= log_start)
            queue.moved |= first != queue.first
            queue.first, queue.trimmed = first, log_start
        return queue.first

    def at_time(self, queue: Queue, timestamp: int) -> int:
        """The first queue offset stored at or after a time."""
        return self._search(queue, queue.first, lambda entry: entry.time >= timestamp)

    def _search(self, queue: Queue, low: int, reached: Callable[[Entry], bool]) -> int:
        """The first queue offset from which on `reached` holds."""
        high = queue.next
        while low < high:
            middle = (low + high) // 2
            probe, entry = middle, self._index.entry(queue, middle)
            while entry is None and probe + 1 < high:
                # Damaged: the next one that is not stands for it.
                probe += 1
                entry = self._index.entry(queue, probe)
            if entry is None or reached(entry):
                high = middle
            else:
                low = probe + 1
        return low

    # Checkpoints.

    def stage(self, position: int, log_start: int) -> Batch:
        """What happened before a position of the log, for the index file. One at a time: settle or unstage it."""
        staged = self._staged = _Staged(self._messages)
        batch = Batch(position, self.time)
        self._stage_tables(position, staged, batch)
        self._stage_queues(position, staged, batch, log_start)
        for period, each in self.keys.periods.items():
            if each.entries:
                entries = each.staged(position)
                staged.keys.append((period, len(entries)))
                batch.keys.append((period, entries))
                batch.periods.append((period, each.oldest, each.newest))
        if log_start != self.log_start:
            batch.first_period = log_start // keys.PERIOD
        staged.log_start = log_start
        return batch

    def _stage_tables(self, position: int, staged: "_Staged", batch: Batch) -> None:
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
            puts = [batches.item(name, key, value) for key, value in changes.items() if value is not None]
            deletes = [batches.pair(key, b"") for key, value in changes.items() if value is None]
            if puts:
                batch.puts[name] = b"".join(puts)
            if deletes:
                batch.deletes[name] = b"".join(deletes)
        for table, key in deleted_later:
            table.bury(key)

    def _stage_queues(self, position: int, staged: "_Staged", batch: Batch, log_start: int) -> None:
        for at, topic, queues in self._drops:
            if at < position:
                staged.drops += 1
                batch.dropped.append((topic, at))
                batch.gone_queues += [queue.number for queue in queues]
        if log_start != self.log_start:
            self._trim(log_start)
        rows = []
        for queue in self._touched:
            if queue.dropped is not None and queue.dropped < position:
                staged.queues.append((queue, queue.next))
                continue
            until = queue.staged(position)
            staged.queues.append((queue, until))
            rows += [batches.chunk(queue.number, number, entries) for number, entries in queue.chunks(until)]
            if until > queue.tail_start or queue.moved:
                batch.queues.append((queue.number, queue.topic, queue.queue_id, min(queue.first, until), until))
            if queue.kept < queue.first // CHUNK:
                batch.first_chunks.append((queue.number, queue.first // CHUNK))
        batch.chunks = b"".join(rows)

    def _trim(self, log_start: int) -> None:
        """Have every queue looked at whose first messages are gone."""
        for queue in self._queues.values():
            before = queue.first
            if self.first(queue, log_start) != before or queue.moved:
                queue.moved = True
                self._touched[queue] = None

    def settle(self) -> None:
        """The index file has what was staged."""
        staged = self._staged
        assert staged is not None
        for table in staged.tables:
            table.settle()
        for queue, until in staged.queues:
            if until > queue.tail_start:
                queue.settle(until)
            queue.moved = False
            queue.kept = queue.first // CHUNK
            if queue.tail is None:
                self._touched.pop(queue, None)
        for period, size in staged.keys:
            self.keys.settle(period, size)
        for _ in range(staged.changes):
            self._changes.popleft()
        del self._drops[: staged.drops]
        self._messages -= staged.messages
        self.log_start = staged.log_start
        self.keys.trim(staged.log_start)
        self.dropped = {topic: at for topic, at in self.dropped.items() if at >= staged.log_start}
        self._staged = None

    def unstage(self) -> None:
        """The index file did not take it."""
        staged = self._staged
        assert staged is not None
        for table in staged.tables:
            table.unstage()
        self._staged = None


class _Staged:
    """How much of everything a checkpoint takes."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.tables: list[StoredTable] = []
        self.changes = 0
        self.queues: list[tuple[Queue, int]] = []
        self.keys: list[tuple[int, int]] = []
        self.drops = 0
        self.log_start = 0


def _keys_of(message: StoredMessage) -> list[str]:
    """What a message can be found by: its unique key and its keys, as brokers index them (IndexService)."""
    unique = message.get(properties.UNIQ_CLIENT_MESSAGE_ID)
    text = message.get(properties.KEYS)
    names = text.split() if text else []
    if unique:
        names.append(unique)
    return names

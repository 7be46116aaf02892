"""Reads of messages: by queue offset, by time, by key."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial

from proxy.embedded.store import MAX_SIZE, keys
from proxy.embedded.store.damage import Damage
from proxy.embedded.store.errors import Corrupt
from proxy.embedded.store.index import Index
from proxy.embedded.store.log import Log
from proxy.embedded.store.queue import Entry, Queue
from proxy.embedded.store.state import State
from remoting import properties
from remoting.errors import BodyError
from remoting.messages import decode_message

# Maximum number of messages with one key of a period that a search looks at, the newest.
_MAX_POSITIONS = 4096


class StoreReader:
    """Reads records through the queues and keys of a state."""

    def __init__(self, log: Log, index: Index, state: State, damage: Damage) -> None:
        self._log = log
        self._index = index
        self._state = state
        self._damage = damage

    def read(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        """Return records from a queue offset on.

        At least one if there is one, at most `count` and about `size` bytes; none outside the bounds. Stops before a
        corrupt record; raises Corrupt if the first one is corrupt, with the offset to continue at, and StorageBusy.
        """
        queue = self._state.queue(topic, queue_id)
        if queue is None or not self._state.first(queue, self._log.start) <= offset < queue.next:
            return []
        records: list[bytes] = []
        total = 0
        for at in range(offset, min(offset + count, queue.next)):
            entry = self._index.entry(queue, at)
            record = self._log.read(entry.position, entry.size) if entry and entry.size else None
            if record is None:
                if records:
                    break
                raise self._corrupt(queue, at, entry)
            total += len(record)
            if total > size and records:
                break
            records.append(record)
        return records

    def head(self, topic: str, queue_id: int, offset: int, size: int) -> bytes | None:
        """Return the first bytes of the record at a queue offset, without a check for damage; None if there is none.

        Raises StorageBusy.
        """
        queue = self._state.queue(topic, queue_id)
        if queue is None or not self._state.first(queue, self._log.start) <= offset < queue.next:
            return None
        entry = self._index.entry(queue, offset)
        return self._log.read_head(entry.position, size) if entry and entry.size else None

    def _corrupt(self, queue: Queue, offset: int, entry: Entry | None) -> Corrupt:
        """Return the error of a damaged message, which is counted and logged once."""
        lost = entry is not None and entry.size == 0
        next_offset = offset + 1
        while entry is not None and entry.size == 0 and next_offset < queue.next:
            # All messages that were lost together.
            entry = self._index.entry(queue, next_offset)
            next_offset += entry is not None and entry.size == 0
        position = entry.position if entry else None
        text = f"message {offset} of queue {queue.queue_id} of topic {queue.topic} is damaged, at {position} of the log"
        if not lost:
            # The loss was reported when it was found.
            self._damage.report((queue.topic, queue.queue_id, offset), text)
        return Corrupt(text, position, next_offset)

    def tag_codes(self, topic: str, queue_id: int, offset: int, count: int) -> list[int]:
        """Return the hash codes of the tags from a queue offset on."""
        queue = self._state.queue(topic, queue_id)
        if queue is None or not self._state.first(queue, self._log.start) <= offset < queue.next:
            return []
        entries = (self._index.entry(queue, at) for at in range(offset, min(offset + count, queue.next)))
        return [entry.tag_code if entry else 0 for entry in entries]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the queue offsets of the first message kept and one past the last."""
        queue = self._state.queue(topic, queue_id)
        return (self._state.first(queue, self._log.start), queue.next) if queue else (0, 0)

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the first queue offset stored at or after this time (ms)."""
        queue = self._state.queue(topic, queue_id)
        if queue is None:
            return 0
        self._state.first(queue, self._log.start)
        return self._state.at_time(queue, timestamp)

    def by_key(self, topic: str, key: str, begin: int, end: int, count: int, size: int = MAX_SIZE) -> list[bytes]:
        """Return records with a key, stored between two times (ms), newest first.

        At least one if there is one, at most `count` and about `size` bytes.
        """
        records: list[bytes] = []
        total = 0
        for position in self._positions(keys.digest(topic, key), begin, end):
            if len(records) >= count:
                break
            record = self._log.read_at(position) if position > self._state.dropped.get(topic, -1) else None
            if record is not None and _has_key(record, topic, key, begin, end):
                total += len(record)
                if total > size and records:
                    break
                records.append(record)
        return records

    def _positions(self, digest: bytes, begin: int, end: int) -> Iterator[int]:
        """Yield the positions of messages with the hash of a key, stored between two times (ms), newest first.

        Reads as many messages as a binary search: thousands may have the same key. Of more than that in one period, the
        older ones are not found.
        """
        for period in self._state.keys.between(begin, end):
            found = self._state.keys.periods[period].find(digest, _MAX_POSITIONS)
            if len(found) < _MAX_POSITIONS:
                found += self._index.key_positions(period, digest, _MAX_POSITIONS - len(found))
            positions = sorted(set(found))
            first = bisect_left(positions, begin, key=partial(self._stored_at, begin))
            yield from reversed(
                positions[first : bisect_right(positions, end, first, key=partial(self._stored_at, end))]
            )

    def _stored_at(self, default: int, position: int) -> int:
        """Return the store timestamp (ms) of the message at a position, or the default for a damaged one."""
        record = self._log.read_at(position)
        try:
            return default if record is None else decode_message(record).store_timestamp
        except BodyError:
            return default


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

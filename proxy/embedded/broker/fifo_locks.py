"""FIFO locks: queues that a group pops in lock, locked until the popped messages are done (ConsumerOrderInfoManager).

Sans-io. One row per (topic, group, queue): the messages of the last pop, the acknowledged ones among them, the times
until which they are invisible, and their numbers of previous deliveries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import orjson

from proxy.embedded.store import Store

Key = tuple[str, str, int]


@dataclass(slots=True)
class FifoLock:
    """The last pop of one queue. Times in ms, offsets ascending.

    visible: the times at which single messages become visible, if changed. counts: previous deliveries by offset.
    """

    pop_time: int
    invisible_time: int
    offsets: list[int]
    attempt_id: str | None = None
    acked: set[int] = field(default_factory=set)
    visible: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def free_at(self) -> int:
        """Return the time at which every message is acknowledged or visible, so that the queue may be popped again."""
        waiting = [
            self.visible.get(offset, self.pop_time + self.invisible_time)
            for offset in self.offsets
            if offset not in self.acked
        ]
        return max(waiting, default=0)

    @property
    def next_offset(self) -> int:
        """The offset of the first message that is not acknowledged, or one past the last."""
        waiting = (offset for offset in self.offsets if offset not in self.acked)
        return next(waiting, self.offsets[-1] + 1)

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "p": self.pop_time,
                "i": self.invisible_time,
                "o": self.offsets,
                "a": self.attempt_id,
                "d": sorted(self.acked),
                "v": list(self.visible.items()),
                "c": list(self.counts.items()),
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> "FifoLock":
        data = orjson.loads(value)
        visible, counts = (dict(map(tuple, data[name])) for name in "vc")
        return cls(data["p"], data["i"], data["o"], data["a"], set(data["d"]), visible, counts)


class FifoLocks:
    """All FIFO locks by key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.table("orders")
        self._locks = {_key(key): FifoLock.decode(value) for key, value in self._table.items()}

    def __len__(self) -> int:
        return len(self._locks)

    def blocked(self, key: Key, attempt_id: str | None, now: int) -> bool:
        """Return whether a queue is locked. A retry of the same pop, by its attempt id, is not blocked."""
        lock = self._locks.get(key)
        if lock is None or (lock.attempt_id is not None and lock.attempt_id == attempt_id):
            return False
        return now < lock.free_at()

    def free_at(self, key: Key) -> int:
        """Return the time (ms) at which a queue becomes free, 0 for a free one."""
        lock = self._locks.get(key)
        return 0 if lock is None else lock.free_at()

    def new_lock(
        self, key: Key, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: Sequence[int]
    ) -> FifoLock:
        """Return the lock of a pop of these messages, which `put` must store."""
        lock = FifoLock(pop_time, invisible_time, list(offsets), attempt_id or None)
        last = self._locks.get(key)
        if last is not None:
            if last.attempt_id is not None and last.attempt_id == lock.attempt_id:
                lock.counts = last.counts
            else:
                redelivered = set(last.offsets)
                lock.counts = {o: last.counts.get(o, 0) + 1 for o in lock.offsets if o in redelivered}
        return lock

    def put(self, key: Key, lock: FifoLock) -> None:
        """Lock a queue."""
        self._table.put(_row(key), lock.encode())
        self._store.when_written(partial(self._locks.__setitem__, key, lock))

    def ack(self, key: Key, offset: int, pop_time: int) -> int | None:
        """Acknowledge a message; return the offset at which the group continues, or None for an expired handle.

        A handle has expired if its messages were popped again, or if the group's offset was reset since. Raises
        KeyError for a message that was not delivered.
        """
        lock = self._locks.get(key)
        if lock is None or pop_time != lock.pop_time:
            return None
        if offset not in lock.offsets:
            raise KeyError(offset)
        acked = replace(lock, acked=lock.acked | {offset})
        self.put(key, acked)
        return acked.next_offset

    def postpone(self, key: Key, offset: int, pop_time: int, visible_at: int) -> None:
        """Make a message visible at another time."""
        lock = self._locks.get(key)
        if lock is not None and lock.pop_time == pop_time:
            self.put(key, replace(lock, visible=lock.visible | {offset: visible_at}))

    def clear(self, key: Key) -> None:
        """Unlock a queue."""
        if key in self._locks:
            self._table.delete(_row(key))
            self._store.when_written(partial(self._locks.pop, key, None))

    def drop(self, topic: str | None = None, group: str | None = None) -> None:
        """Unlock the queues of a topic or of a group."""
        for key in [key for key in self._locks if topic == key[0] or group == key[1]]:
            self.clear(key)

    def locked(self, now: int) -> Iterator[tuple[int, Key]]:
        """Yield (time at which it is free, key) of every locked queue."""
        for key, lock in self._locks.items():
            if (at := lock.free_at()) > now:
                yield at, key


def _row(key: Key) -> bytes:
    return "\0".join(map(str, key)).encode()


def _key(row: bytes) -> Key:
    topic, group, queue_id = row.decode().split("\0")
    return topic, group, int(queue_id)

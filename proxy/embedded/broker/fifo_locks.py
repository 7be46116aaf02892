"""Order: queues that a group pops in order, locked until what was handed out is done (ConsumerOrderInfoManager).

Sans-io. One row per (topic, group, queue): the messages of the last pop, which of them are acknowledged, until
when each is invisible, and how often each was handed out before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import orjson

from proxy.embedded.store import Table

Key = tuple[str, str, int]


@dataclass(slots=True)
class Order:
    """The last pop of one queue. Times in ms; offsets ascending; visible: own times of single messages."""

    pop_time: int
    invisible_time: int
    offsets: list[int]
    attempt_id: str | None = None
    acked: set[int] = field(default_factory=set)
    visible: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def free_at(self) -> int:
        """When the queue may be popped again: once every message is acknowledged or visible."""
        waiting = [
            self.visible.get(offset, self.pop_time + self.invisible_time)
            for offset in self.offsets
            if offset not in self.acked
        ]
        return max(waiting, default=0)

    @property
    def next_offset(self) -> int:
        """The first message that is not acknowledged, or the one behind the last."""
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
    def decode(cls, value: bytes) -> "Order":
        data = orjson.loads(value)
        visible, counts = (dict(map(tuple, data[name])) for name in "vc")
        return cls(data["p"], data["i"], data["o"], data["a"], set(data["d"]), visible, counts)


class FifoLocks:
    """All rows."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._orders = {_key(key): Order.decode(value) for key, value in table.items()}

    def blocked(self, key: Key, attempt_id: str | None, now: int) -> bool:
        """Whether the queue is locked, but for the one who repeats the very pop that locked it."""
        order = self._orders.get(key)
        if order is None or (order.attempt_id is not None and order.attempt_id == attempt_id):
            return False
        return now < order.free_at()

    def free_at(self, key: Key) -> int:
        """When the queue is free by itself, 0 for one that is."""
        order = self._orders.get(key)
        return 0 if order is None else order.free_at()

    def popped(
        self, key: Key, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: Sequence[int]
    ) -> Order:
        """The row of a pop that hands these messages out, to be written and noted; it has counted them."""
        order = Order(pop_time, invisible_time, list(offsets), attempt_id or None)
        last = self._orders.get(key)
        if last is not None:
            if last.attempt_id is not None and last.attempt_id == order.attempt_id:
                order.counts = last.counts
            else:
                again = set(last.offsets)
                order.counts = {o: last.counts.get(o, 0) + 1 for o in order.offsets if o in again}
        return order

    def write(self, key: Key, order: Order) -> None:
        """The half of a change that belongs into a transaction; `note` is the other, once that has succeeded."""
        self._table.put(_row(key), order.encode())

    def note(self, key: Key, order: Order) -> None:
        """Remember what has been written."""
        self._orders[key] = order

    def ack(self, key: Key, offset: int, pop_time: int) -> int | None:
        """Acknowledge a message; the offset from which the group goes on. None: the handle is void.

        Raises KeyError for a message that has not been handed out.
        """
        order = self._orders.get(key)
        if order is None:
            return offset + 1
        if pop_time != order.pop_time:
            return None
        if offset not in order.offsets:
            raise KeyError(offset)
        order.acked.add(offset)
        self.write(key, order)
        return order.next_offset

    def postpone(self, key: Key, offset: int, pop_time: int, visible_at: int) -> None:
        """A message is visible at another time."""
        order = self._orders.get(key)
        if order is not None and order.pop_time == pop_time:
            order.visible[offset] = visible_at
            self.write(key, order)

    def clear(self, key: Key) -> None:
        """Unlock a queue."""
        if self._orders.pop(key, None) is not None:
            self._table.delete(_row(key))

    def drop(self, topic: str | None = None, group: str | None = None) -> None:
        """Forget a topic's or a group's queues."""
        for key in [key for key in self._orders if topic == key[0] or group == key[1]]:
            self.clear(key)

    def locked(self, now: int) -> Iterator[tuple[int, Key]]:
        """(when it is free, key) of every locked queue."""
        for key, order in self._orders.items():
            if (at := order.free_at()) > now:
                yield at, key


def _row(key: Key) -> bytes:
    return "\0".join(map(str, key)).encode()


def _key(row: bytes) -> Key:
    topic, group, queue_id = row.decode().split("\0")
    return topic, group, int(queue_id)

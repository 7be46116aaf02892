"""Checkpoints: which popped messages have still to be acknowledged, and when they are handed out again.

A checkpoint is what one pop took from one queue. It is a row in a table until all of its messages have been
acknowledged, or until their invisible time is over: then what is left goes to the group's retry topic. Offsets
move on with the pop, in the same transaction, so that after a crash nothing is lost and nothing that was
acknowledged comes again.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.embedded.store import Table

# Topic, group, queue id, start offset, pop time: what a handle says.
Key = tuple[str, str, int, int, int]


@dataclass(slots=True)
class Checkpoint:
    """Messages of one queue, by their offsets, that are invisible until a time (ms)."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    visible_at: int
    offsets: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time

    def encode(self) -> bytes:
        return " ".join(map(str, (self.visible_at, *self.offsets))).encode()


class Checkpoints:
    """Checkpoints by key, and by the time at which they are over."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._points: dict[Key, Checkpoint] = {}
        self._times: list[tuple[int, Key]] = []
        for key, value in table.items():
            self.note(_decode(key, value))

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, key: Key) -> bool:
        return key in self._points

    def write(self, point: Checkpoint) -> None:
        """The half of adding that belongs into a transaction; `note` is the other, once that has succeeded."""
        self._table.put(_row(point.key), point.encode())

    def note(self, point: Checkpoint) -> None:
        """Remember what has been written."""
        self._points[point.key] = point
        heapq.heappush(self._times, (point.visible_at, point.key))

    def ack(self, key: Key, offsets: Iterable[int]) -> int:
        """Acknowledge messages; how many of them were waiting for it."""
        point = self._points.get(key)
        if point is None:
            return 0
        gone = set(offsets)
        left = tuple(offset for offset in point.offsets if offset not in gone)
        count = len(point.offsets) - len(left)
        if not left:
            self.drop(point)
        elif count:
            changed = Checkpoint(*key, point.visible_at, left)
            self.write(changed)
            self._points[key] = changed
        return count

    def waits(self, key: Key, offset: int) -> bool:
        """Whether a message has still to be acknowledged."""
        point = self._points.get(key)
        return point is not None and offset in point.offsets

    def erase(self, point: Checkpoint) -> None:
        """The half of dropping that belongs into a transaction; `forget` is the other."""
        self._table.delete(_row(point.key))

    def forget(self, point: Checkpoint) -> None:
        """Forget what has been erased."""
        self._points.pop(point.key, None)

    def drop(self, point: Checkpoint) -> None:
        """A checkpoint is over."""
        self.erase(point)
        self.forget(point)

    def due(self, now: int) -> list[Checkpoint]:
        """Those whose invisible time is over; they stay until dropped, and come once."""
        found = []
        while self._times and self._times[0][0] <= now:
            time, key = heapq.heappop(self._times)
            point = self._points.get(key)
            if point is not None and point.visible_at == time:
                found.append(point)
        return found

    def again(self, point: Checkpoint, at: int) -> None:
        """What could not be revived now is looked at again later."""
        point.visible_at = at
        heapq.heappush(self._times, (at, point.key))

    def of(self, topic: str, group: str) -> Sequence[Checkpoint]:
        """A group's checkpoints in a topic."""
        return [point for point in self._points.values() if point.topic == topic and point.group == group]


def _row(key: Key) -> bytes:
    return "\0".join(map(str, key)).encode()


def _decode(key: bytes, value: bytes) -> Checkpoint:
    topic, group, *numbers = key.decode().split("\0")
    visible_at, *offsets = map(int, value.split())
    queue_id, start_offset, pop_time = map(int, numbers)
    return Checkpoint(topic, group, queue_id, start_offset, pop_time, visible_at, tuple(offsets))

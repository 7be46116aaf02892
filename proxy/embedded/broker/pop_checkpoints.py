"""Checkpoints: popped messages that are not acknowledged yet, and the times of their redelivery.

A checkpoint contains the messages that one pop took from one queue. It is a row of a table until all of them are
acknowledged, or until their invisible time is over: then the others go to the group's retry topic. The pop advances the
group's offset in the same transaction, so that after a crash no message is lost and no acknowledged one is redelivered.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.embedded.broker.work_budget import WorkBudget
from proxy.embedded.store import Store
from remoting.counts import count_down

# Minimum number of outdated times before the times are rebuilt.
_MIN_OUTDATED = 1024

# Topic, group, queue id, start offset and pop time, as in a receipt handle.
Key = tuple[str, str, int, int, int]


@dataclass(slots=True)
class Checkpoint:
    """Messages of one queue, by their offsets, that are invisible until `visible_at` (ms)."""

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
    """Checkpoints by key, and by the time at which their messages become visible."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.table("pops")
        self._checkpoints: dict[Key, Checkpoint] = {}
        self._times: list[tuple[int, Key]] = []
        # The keys by topic and group: other groups may have millions.
        self._keys: dict[tuple[str, str], dict[Key, None]] = {}
        # The number of checkpoints by group.
        self._counts: Counter[str] = Counter()
        for key, value in self._table.items():
            self._add(_decode(key, value))

    def __len__(self) -> int:
        return len(self._checkpoints)

    def __contains__(self, key: Key) -> bool:
        return key in self._checkpoints

    def count(self, topic: str, group: str) -> int:
        """Return the number of a group's checkpoints in a topic."""
        return len(self._keys.get((topic, group), ()))

    def count_of_group(self, group: str) -> int:
        """Return the number of a group's checkpoints in all topics."""
        return self._counts.get(group, 0)

    def put(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint."""
        self._table.put(_row(checkpoint.key), checkpoint.encode())
        self._store.when_written(partial(self._add, checkpoint))

    def _add(self, checkpoint: Checkpoint) -> None:
        if checkpoint.key not in self._checkpoints:
            self._counts[checkpoint.group] += 1
        self._keys.setdefault((checkpoint.topic, checkpoint.group), {})[checkpoint.key] = None
        self._checkpoints[checkpoint.key] = checkpoint
        heapq.heappush(self._times, (checkpoint.visible_at, checkpoint.key))
        if len(self._times) > 2 * len(self._checkpoints) + _MIN_OUTDATED:
            # Most are of checkpoints that were acknowledged or moved.
            self._times = [(each.visible_at, key) for key, each in self._checkpoints.items()]
            heapq.heapify(self._times)

    def ack(self, key: Key, offsets: Iterable[int]) -> int:
        """Acknowledge messages; return how many of them were not acknowledged before."""
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None:
            return 0
        acknowledged = set(offsets)
        remaining = tuple(offset for offset in checkpoint.offsets if offset not in acknowledged)
        count = len(checkpoint.offsets) - len(remaining)
        if not remaining:
            self.drop(checkpoint)
        elif count:
            changed = Checkpoint(*key, checkpoint.visible_at, remaining)
            self._table.put(_row(key), changed.encode())
            self._store.when_written(partial(self._checkpoints.__setitem__, key, changed))
        return count

    def is_pending(self, key: Key, offset: int) -> bool:
        """Return whether a message is not acknowledged yet."""
        checkpoint = self._checkpoints.get(key)
        return checkpoint is not None and offset in checkpoint.offsets

    def drop(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint."""
        self._table.delete(_row(checkpoint.key))
        self._store.when_written(partial(self._remove, checkpoint.key))

    def _remove(self, key: Key) -> None:
        if self._checkpoints.pop(key, None) is None:
            return
        pair = key[:2]
        count_down(self._counts, pair[1])
        del self._keys[pair][key]
        if not self._keys[pair]:
            del self._keys[pair]

    def drop_topic(self, topic: str) -> None:
        """Delete the checkpoints of a topic."""
        for group in [group for name, group in self._keys if name == topic]:
            for checkpoint in self.of_group(topic, group):
                self.drop(checkpoint)

    def due(self, now: int, budget: WorkBudget) -> Iterator[Checkpoint]:
        """Yield checkpoints whose invisible time is over, each once; they remain until they are dropped.

        The others are left to the next call when the budget is exhausted.
        """
        while self._times and self._times[0][0] <= now and not budget.exhausted:
            time, key = heapq.heappop(self._times)
            budget.use()
            checkpoint = self._checkpoints.get(key)
            if checkpoint is not None and checkpoint.visible_at == time:
                yield checkpoint

    def retry_at(self, checkpoint: Checkpoint, at: int) -> None:
        """Return a checkpoint from `due` again at a time (ms), because it could not be revived now."""
        checkpoint.visible_at = at
        heapq.heappush(self._times, (at, checkpoint.key))

    def of_group(self, topic: str, group: str) -> Sequence[Checkpoint]:
        """Return a group's checkpoints in a topic."""
        return [self._checkpoints[key] for key in self._keys.get((topic, group), ())]


def _row(key: Key) -> bytes:
    return "\0".join(map(str, key)).encode()


def _decode(key: bytes, value: bytes) -> Checkpoint:
    topic, group, *numbers = key.decode().split("\0")
    visible_at, *offsets = map(int, value.split())
    queue_id, start_offset, pop_time = map(int, numbers)
    return Checkpoint(topic, group, queue_id, start_offset, pop_time, visible_at, tuple(offsets))

"""Consumer offsets: the progress of each group in each queue (RocketMQ's ConsumerOffsetManager)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from proxy.embedded.broker.errors import Refused
from proxy.embedded.store import Store, Table
from remoting.codes import ResponseCode

_NO_OFFSETS: dict[int, int] = {}


class Offsets:
    """Offsets by (topic, group) and queue id; a second table contains pending resets.

    Offsets that were pulled but not committed are lost at the next start. maximum: number of offsets beside which the
    requests of clients begin to consume no further topic in a group.
    """

    def __init__(self, store: Store, maximum: int) -> None:
        self._store = store
        self._maximum = maximum
        self._table, self._resets = store.table("offsets"), store.table("resets")
        self._offsets = _load(self._table)
        self._pending_resets = _load(self._resets)
        self._pulled: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._count = sum(map(len, self._offsets.values()))
        self._pulled_count = 0

    def __len__(self) -> int:
        return self._count

    def admits(self, topic: str, group: str) -> bool:
        """Return whether a request may store offsets of a group in a topic: it has some, or there is room."""
        return (topic, group) in self._offsets or self._count < self._maximum

    def check_room(self, topic: str, group: str) -> None:
        """Raise Refused if a request may store no offsets of a group in a topic."""
        if not self.admits(topic, group):
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"consumer group {group} cannot begin to consume topic {topic}: {self._count} offsets of groups are"
                f" stored, at most {self._maximum} may be (embedded.max_offsets); delete unused groups",
            )

    def get(self, topic: str, group: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if unknown."""
        return self._offsets.get((topic, group), _NO_OFFSETS).get(queue_id, -1)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Store an offset; return whether it changed."""
        if self.get(topic, group, queue_id) == offset:
            return False
        self._table.put(_key(topic, group, queue_id), _value(offset))
        self._store.when_written(partial(self._set, (topic, group), queue_id, offset))
        return True

    def _set(self, pair: tuple[str, str], queue_id: int, offset: int) -> None:
        offsets = self._offsets[pair]
        self._count += queue_id not in offsets
        offsets[queue_id] = offset

    def set_pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset up to which a group has pulled, unless there is no room for another group in a topic."""
        if (topic, group) in self._pulled or self._pulled_count < self._maximum:
            offsets = self._pulled[topic, group]
            self._pulled_count += queue_id not in offsets
            offsets[queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        """Return the offset up to which a group has pulled, -1 if unknown."""
        return self._pulled.get((topic, group), _NO_OFFSETS).get(queue_id, -1)

    # Resets.

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Reset a group, whose members are notified with their next pull."""
        self.commit(topic, group, queue_id, offset)
        self._resets.put(_key(topic, group, queue_id), _value(offset))
        self._pending_resets[topic, group][queue_id] = offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether members have not been notified of a reset yet."""
        return queue_id in self._pending_resets.get((topic, group), _NO_OFFSETS)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Remove and return the offset of a pending reset, or None."""
        pending = self._pending_resets.get((topic, group))
        if not pending or queue_id not in pending:
            return None
        self._resets.delete(_key(topic, group, queue_id))
        return pending.pop(queue_id)

    # Topics and groups.

    def of(self, topic: str, group: str) -> dict[int, int]:
        """Return a group's offsets in a topic by queue id."""
        return dict(self._offsets.get((topic, group), _NO_OFFSETS))

    def topics(self, group: str) -> set[str]:
        """Return the topics in which a group has offsets."""
        return {topic for topic, name in self._offsets if name == group}

    def groups(self, topic: str) -> set[str]:
        """Return the groups that have offsets in a topic."""
        return {group for name, group in self._offsets if name == topic}

    def items(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """Return (topic, group, offsets by queue id) of all groups."""
        return ((topic, group, dict(offsets)) for (topic, group), offsets in list(self._offsets.items()))

    def drop_group(self, group: str) -> None:
        """Remove the offsets of a group."""
        self._drop({pair for pair in (*self._offsets, *self._pulled) if pair[1] == group})

    def drop_topic(self, topic: str) -> None:
        """Remove the offsets in a topic."""
        self._drop({pair for pair in (*self._offsets, *self._pulled) if pair[0] == topic})

    def _drop(self, pairs: Iterable[tuple[str, str]]) -> None:
        for topic, group in pairs:
            for queue_id in self._offsets.get((topic, group), _NO_OFFSETS):
                self._table.delete(_key(topic, group, queue_id))
            for queue_id in self._pending_resets.get((topic, group), _NO_OFFSETS):
                self._resets.delete(_key(topic, group, queue_id))
            self._store.when_written(partial(self._forget, topic, group))

    def _forget(self, topic: str, group: str) -> None:
        self._count -= len(self._offsets.get((topic, group), _NO_OFFSETS))
        self._pulled_count -= len(self._pulled.get((topic, group), _NO_OFFSETS))
        for table in (self._offsets, self._pending_resets, self._pulled):
            table.pop((topic, group), None)


def _key(topic: str, group: str, queue_id: int) -> bytes:
    return f"{topic}\0{group}\0".encode() + queue_id.to_bytes(4, "big")


def _value(offset: int) -> bytes:
    return offset.to_bytes(8, "big", signed=True)


def _load(table: Table) -> "defaultdict[tuple[str, str], dict[int, int]]":
    offsets: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for key, value in table.items():
        topic, group = key[:-5].decode().split("\0")
        offsets[topic, group][int.from_bytes(key[-4:], "big")] = int.from_bytes(value, "big", signed=True)
    return offsets

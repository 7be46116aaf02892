"""Consumer offsets: how far a group is in each queue, kept in a table (RocketMQ's ConsumerOffsetManager)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from proxy.embedded.store import Table

_NOTHING: dict[int, int] = {}


class Offsets:
    """Offsets by (topic, group) and queue id; a second table holds those to which a group is to be reset.

    What a client has pulled but not committed is known until the next start only.
    """

    def __init__(self, table: Table, resets: Table) -> None:
        self._table = table
        self._resets = resets
        self._offsets = _load(table)
        self._reset_to = _load(resets)
        self._pulled: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    def get(self, topic: str, group: str, queue_id: int) -> int:
        """The next offset to consume, -1 where nothing is known."""
        return self._offsets.get((topic, group), _NOTHING).get(queue_id, -1)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Note an offset; true where that changed anything."""
        if self.get(topic, group, queue_id) == offset:
            return False
        self.write(topic, group, queue_id, offset)
        self.note(topic, group, queue_id, offset)
        return True

    def write(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The half of a commit that belongs into a transaction; `note` is the other, once that has succeeded."""
        self._table.put(_key(topic, group, queue_id), _value(offset))

    def note(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember what has been written."""
        self._offsets[topic, group][queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Note how far a group has pulled."""
        self._pulled[topic, group][queue_id] = offset

    def pulled_to(self, topic: str, group: str, queue_id: int) -> int:
        """How far a group has pulled, -1 where nothing is known."""
        return self._pulled.get((topic, group), _NOTHING).get(queue_id, -1)

    # Resets.

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Move a group, whose members learn of it with their next pull."""
        self.commit(topic, group, queue_id, offset)
        self._resets.put(_key(topic, group, queue_id), _value(offset))
        self._reset_to[topic, group][queue_id] = offset

    def is_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a reset has still to be told."""
        return queue_id in self._reset_to.get((topic, group), _NOTHING)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset to which the group was moved, told once."""
        waiting = self._reset_to.get((topic, group))
        if not waiting or queue_id not in waiting:
            return None
        self._resets.delete(_key(topic, group, queue_id))
        return waiting.pop(queue_id)

    # Topics and groups.

    def of(self, topic: str, group: str) -> dict[int, int]:
        """Offsets by queue id."""
        return dict(self._offsets.get((topic, group), _NOTHING))

    def topics(self, group: str) -> set[str]:
        """Topics in which a group has offsets."""
        return {topic for topic, name in self._offsets if name == group}

    def groups(self, topic: str) -> set[str]:
        """Groups that have offsets in a topic."""
        return {group for name, group in self._offsets if name == topic}

    def items(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """(topic, group, offsets by queue id) of everything."""
        return ((topic, group, dict(offsets)) for (topic, group), offsets in list(self._offsets.items()))

    def drop_group(self, group: str) -> None:
        self._drop([pair for pair in self._offsets if pair[1] == group])

    def drop_topic(self, topic: str) -> None:
        self._drop([pair for pair in self._offsets if pair[0] == topic])

    def _drop(self, pairs: Iterable[tuple[str, str]]) -> None:
        for topic, group in pairs:
            for queue_id in self._offsets.pop((topic, group)):
                self._table.delete(_key(topic, group, queue_id))
            for queue_id in self._reset_to.pop((topic, group), {}):
                self._resets.delete(_key(topic, group, queue_id))
            self._pulled.pop((topic, group), None)


def _key(topic: str, group: str, queue_id: int) -> bytes:
    return f"{topic}\0{group}\0".encode() + queue_id.to_bytes(4, "big")


def _value(offset: int) -> bytes:
    return offset.to_bytes(8, "big", signed=True)


def _load(table: Table) -> "defaultdict[tuple[str, str], dict[int, int]]":
    found: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for key, value in table.items():
        topic, group = key[:-5].decode().split("\0")
        found[topic, group][int.from_bytes(key[-4:], "big")] = int.from_bytes(value, "big", signed=True)
    return found

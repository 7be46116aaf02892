"""Offset tables in brokers' replies: numbers by message queue, and the progress of consumer groups."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys, load_object


class QueueKey(NamedTuple):
    """A message queue."""

    topic: str
    broker: str
    queue: int


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """Offsets of a consumer group in a queue (OffsetWrapper).

    end: the offset after the queue's last message; consumed and pulled: the offset after the last message that the
    group has consumed or pulled. consumed_until: store time of that message, in ms since 1970; 0: none.
    """

    key: QueueKey
    end: int
    consumed: int
    pulled: int
    consumed_until: int

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed."""
        return max(self.end - self.consumed, 0)

    @property
    def in_flight(self) -> int:
        """Messages that the group has pulled and not consumed."""
        # -1 and 0 mean that the broker has no pulled offset.
        return min(max(self.pulled - self.consumed, 0), self.lag)


def queue_key(data: dict[str, Any]) -> QueueKey:
    """Return a queue from its JSON (MessageQueue)."""
    return QueueKey(str(data.get("topic", "")), str(data.get("brokerName", "")), int(data.get("queueId", -1)))


def offset_table(body: bytes) -> list[tuple[QueueKey, Any]]:
    """Return the `offsetTable` of a reply, in its order. Raises BodyError."""
    table = (load_object(body) if body else {}).get("offsetTable") or ObjectKeys(())
    if not isinstance(table, ObjectKeys):
        raise BodyError("the reply's offsetTable has keys that are not message queues")
    return [(queue_key(key), value) for key, value in table.pairs if isinstance(key, dict)]


def progress(body: bytes) -> list[QueueOffsets]:
    """Return a group's offsets from a reply to GET_CONSUME_STATS, in its order. Raises BodyError."""
    return [
        QueueOffsets(
            key,
            int(row.get("brokerOffset", 0)),
            int(row.get("consumerOffset", 0)),
            int(row.get("pullOffset", 0)),
            int(row.get("lastTimestamp", 0)),
        )
        for key, row in offset_table(body)
    ]

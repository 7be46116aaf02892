"""Offset tables in brokers' replies: numbers by message queue, and the progress of consumer groups."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys, load_object

# An object without objects, lists and escapes, and a row of such objects as brokers write them (fastjson's dialect).
_FLAT = rb'\{(?:[^\[{}"\\]++|"[^"\\]*+")*+\}'
_ROW = re.compile(rb"(%s):(%s),?" % (_FLAT, _FLAT))
# The first part of a reply, up to the rows.
_HEAD = re.compile(rb'\{(?:[^\[{}"\\]++|"(?!offsetTable")[^"\\]*+")*+"offsetTable":\{(?=\{)')
# Maximum size in bytes of a table of plain objects, enough for 15,000 queues. It bounds the time that the event loop is
# blocked, as that of the parser does.
_MAX_SIZE = 2 * 1024 * 1024


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
    rows = _plain_rows(body)
    if rows is None:
        table = (load_object(body) if body else {}).get("offsetTable") or ObjectKeys(())
        if not isinstance(table, ObjectKeys):
            raise BodyError("the reply's offsetTable has keys that are not message queues")
        rows = table.pairs
    return [(queue_key(key), value) for key, value in rows if isinstance(key, dict)]


def _plain_rows(body: bytes) -> Iterable[tuple[Any, Any]] | None:
    """Return the pairs of an offsetTable of plain objects; None for another form.

    The parser of the dialect needs a second for 5,000 queues, and refuses more than 2,000.
    """
    head = _HEAD.match(body)
    if head is None or len(body) > _MAX_SIZE or b'"$ref"' in body:
        return None
    position = head.end()
    pairs = []
    while (row := _ROW.match(body, position)) is not None:
        pairs.append(b"[%s,%s]" % row.groups())
        position = row.end()
    if body[position : position + 1] != b"}":
        return None
    try:
        rows: list[tuple[Any, Any]] = orjson.loads(b"[%s]" % b",".join(pairs))
    except orjson.JSONDecodeError:
        return None
    return rows


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

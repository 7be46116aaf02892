"""What replicas tell each other of the deliveries that they renew for consumers; pure.

A message is a JSON array: the version of this format, the name of the replica that speaks, then one array per item.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.status import Refused
from remoting.errors import BodyError

_VERSION = 1


class Event(StrEnum):
    """What happened to a delivery."""

    # Its holder has renewed it: `handle` is the newest.
    RENEWED = "renewed"
    # Another replica has acknowledged it, or hidden it until later: `handle` is the one that was used.
    ACKNOWLEDGED = "acknowledged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RenewalEvent:
    """One event. original: the handle as the consumer got it. invisible: of a change, ms."""

    event: Event
    group: str
    topic: str
    original: str
    handle: str
    invisible: int = 0


def encode(replica: str, tidings: Iterable[RenewalEvent]) -> bytes:
    """The message that tells them."""
    items = [[item.event.value, item.group, item.topic, item.original, item.handle, item.invisible] for item in tidings]
    return orjson.dumps([_VERSION, replica, *items])


def decode(body: bytes) -> tuple[str, list[RenewalEvent]]:
    """The replica that speaks, and what it tells. Raises BodyError."""
    try:
        version, replica, *items = orjson.loads(body)
        if version != _VERSION or type(replica) is not str:
            raise BodyError(f"tidings of version {version!r:.20}")
        return replica, [_tiding(item) for item in items]
    except (ValueError, TypeError, Refused) as error:
        raise BodyError(f"a message is no tidings: {error}") from None


def _tiding(item: Sequence[Any]) -> RenewalEvent:
    event, group, topic, original, handle, invisible = item
    if {type(group), type(topic), type(original), type(handle)} != {str} or type(invisible) is not int:
        raise ValueError("an item has a field of the wrong type")
    # What is not a handle would come to light only when somebody acknowledges it.
    ReceiptHandle.parse(original), ReceiptHandle.parse(handle)
    return RenewalEvent(Event(event), group, topic, original, handle, invisible)

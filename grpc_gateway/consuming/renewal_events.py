"""Events by which replicas keep each other's renewals up to date, and their encoding.

A message is a JSON array: the format's version, the sending replica's name, then one array per event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.response_status import Refused
from remoting.errors import BodyError

_VERSION = 1


class RenewalEventType(StrEnum):
    """Type of a change of a delivery."""

    # The replica that renews the delivery did so: `handle` is the newest.
    RENEWED = "renewed"
    # Another replica acknowledged the delivery, or changed its invisible duration: `handle` is the one used.
    ACKNOWLEDGED = "acknowledged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RenewalEvent:
    """One event. original: the consumer's receipt handle. invisible: new invisible duration of CHANGED, in ms."""

    event_type: RenewalEventType
    group: str
    topic: str
    original: str
    handle: str
    invisible: int = 0


def encode(replica: str, events: Iterable[RenewalEvent]) -> bytes:
    """Return the message of these events."""
    items = [
        [event.event_type.value, event.group, event.topic, event.original, event.handle, event.invisible]
        for event in events
    ]
    return orjson.dumps([_VERSION, replica, *items])


def decode(body: bytes) -> tuple[str, list[RenewalEvent]]:
    """Return the sending replica and the events of a message. Raises BodyError."""
    try:
        version, replica, *items = orjson.loads(body)
        if version != _VERSION or type(replica) is not str:
            raise BodyError(f"renewal events have the unknown version {version!r:.20}")
        return replica, [_decode_event(item) for item in items]
    except (ValueError, TypeError, Refused) as error:
        raise BodyError(f"cannot decode renewal events: {error}") from None


def _decode_event(item: Sequence[Any]) -> RenewalEvent:
    event_type, group, topic, original, handle, invisible = item
    if {type(group), type(topic), type(original), type(handle)} != {str} or type(invisible) is not int:
        raise ValueError("a field of a renewal event has the wrong type")
    # An invalid handle would otherwise fail only when the delivery is acknowledged.
    ReceiptHandle.parse(original), ReceiptHandle.parse(handle)
    return RenewalEvent(RenewalEventType(event_type), group, topic, original, handle, invisible)

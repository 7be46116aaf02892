"""What has happened of late, in rings that never grow."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.core.channel import ChannelProtocol
from proxy.core.connections import ConnectionEvent

_Item = TypeVar("_Item")


class Ring(Generic[_Item]):
    """The last `size` items; each has a number, which grows by one. `total` is how many there ever were."""

    def __init__(self, size: int) -> None:
        self._items: deque[tuple[int, _Item]] = deque(maxlen=size)
        self.total = 0

    def add(self, item: _Item) -> None:
        """Keep an item; the oldest goes where there is no room."""
        self.total += 1
        self._items.append((self.total, item))

    def newest(self) -> Iterator[tuple[int, _Item]]:
        """Number and item, the newest first."""
        return iter(list(reversed(self._items)))


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection that has ended. at: seconds since 1970; age: seconds that it was open; bytes as read and written."""

    at: float
    number: int
    protocol: ChannelProtocol
    address: str
    listener: str
    tls: bool
    client_id: str | None
    language: str | None
    version: str | None
    cause: str
    age: float
    requests: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Bytes that were not what they should be. first: up to 16 of them; where: what was being read."""

    at: float
    where: str
    kind: str
    address: str
    via: str | None
    listener: str
    text: str
    first: bytes


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def closed(event: ConnectionEvent, clock: float) -> Closed:
    """What is remembered of a connection that ends now; `clock` is the loop's time."""
    raw, who = event.connection, event.identity
    return Closed(
        at=now(),
        number=event.peer.number,
        protocol=event.protocol,
        address=str(event.peer.address),
        listener=event.peer.listener,
        tls=event.peer.tls is not None,
        client_id=who.client_id,
        language=who.language,
        version=who.version,
        cause=str(event.cause),
        age=clock - raw.opened_at,
        requests=raw.requests,
        bytes_in=raw.received_bytes,
        bytes_out=raw.sent_bytes,
    )

"""Recent events of a replica, in rings of bounded size: closed connections and protocol errors."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.core.connections import ConnectionEvent

_Item = TypeVar("_Item")

# Negotiations that are not errors; CLOSED: the connection ended before its first byte.
_EXPECTED = frozenset((Outcome.REMOTING, Outcome.GRPC, Outcome.HTTP1, Outcome.CLOSED))
# Close causes of a gRPC connection whose client violated the protocol.
_VIOLATIONS = ("protocol", "abuse")
# Bytes of a connection's data that a protocol error keeps.
_MAX_FIRST_BYTES = 16


class Ring(Generic[_Item]):
    """The last `size` items, numbered from 1. `total` is the number of items ever added."""

    def __init__(self, size: int) -> None:
        self._items: deque[tuple[int, _Item]] = deque(maxlen=size)
        self.total = 0

    def add(self, item: _Item) -> None:
        """Add an item, in place of the oldest if the ring is full."""
        self.total += 1
        self._items.append((self.total, item))

    def newest(self) -> Iterator[tuple[int, _Item]]:
        """Yield number and item, the newest first."""
        return iter(list(reversed(self._items)))


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """A connection that has ended. at: seconds since 1970; age: seconds that it was open."""

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
class Violation:
    """A violation of a protocol. first: up to 16 bytes of the data; where: the protocol that was read."""

    at: float
    where: str
    kind: str
    address: str
    via: str | None
    listener: str
    text: str
    first: bytes


class EventLog:
    """The last events of each kind; its methods are listeners."""

    def __init__(self, size: int) -> None:
        self.closed: Ring[ConnectionEnd] = Ring(size)
        self.violations: Ring[Violation] = Ring(size)
        self._loop = asyncio.get_running_loop()

    def negotiated(self, outcome: Outcome, peer: Peer, first: bytes) -> None:
        """Record a failed negotiation."""
        if outcome not in _EXPECTED:
            self._add_violation("negotiation", outcome.value, peer, "", first)

    def undecodable(self, peer: Peer, text: str, first: bytes) -> None:
        """Record bytes of a remoting connection that are not a frame."""
        self._add_violation("remoting", "undecodable", peer, text, first)

    def connection(self, event: ConnectionEvent) -> None:
        """Record the end of a connection."""
        if event.cause is None:
            return
        self.closed.add(_connection_end(event, self._loop.time()))
        if event.protocol == "grpc" and event.cause in _VIOLATIONS:
            fault = getattr(getattr(event.connection, "http2", None), "fault", None)
            kind = str(getattr(fault, "reason", event.cause))
            self._add_violation("grpc", kind, event.peer, str(fault or ""), b"")

    def _add_violation(self, where: str, kind: str, peer: Peer, text: str, first: bytes) -> None:
        via = None if peer.via is None else str(peer.via)
        self.violations.add(
            Violation(now(), where, kind, str(peer.address), via, peer.listener, text, bytes(first[:_MAX_FIRST_BYTES]))
        )


def now() -> float:
    """Return the seconds since 1970."""
    return time.time()


def _connection_end(event: ConnectionEvent, clock: float) -> ConnectionEnd:
    connection, identity = event.connection, event.identity
    return ConnectionEnd(
        at=now(),
        number=event.peer.number,
        protocol=event.protocol,
        address=str(event.peer.address),
        listener=event.peer.listener,
        tls=event.peer.tls is not None,
        client_id=identity.client_id,
        language=identity.language,
        version=identity.version,
        cause=str(event.cause),
        age=clock - connection.opened_at,
        requests=connection.requests,
        bytes_in=connection.received_bytes,
        bytes_out=connection.sent_bytes,
    )

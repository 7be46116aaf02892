"""Connections of clients, by protocol and listener: opened = open + closed by cause, at any time."""

from collections import Counter
from collections.abc import Iterator

from proxy.core.connections import Connection, ConnectionEvent
from proxy.observability.metrics.family import Family, Kind, Labels, Samples

_WHERE = ("protocol", "listener")
OPENED = Family("gantry_connections_opened", Kind.COUNTER, "Connections that were handed to their protocol.", _WHERE)
CLOSED = Family("gantry_connections_closed", Kind.COUNTER, "Connections that ended, by cause.", (*_WHERE, "cause"))
OPEN = Family("gantry_connections", Kind.GAUGE, "Open connections.", _WHERE)
BYTES = Family(
    "gantry_connection_bytes",
    Kind.COUNTER,
    "Bytes read from clients (in) and written to them (out), inside TLS.",
    ("protocol", "direction"),
)
PAUSES = Family(
    "gantry_read_pauses",
    Kind.COUNTER,
    "Times that reading from a client's connection stopped: it has too much under way, reads no answers, or its broker "
    "is congested.",
    ("protocol",),
)
UNDECODABLE = Family(
    "gantry_undecodable_requests",
    Kind.COUNTER,
    "Remoting requests of clients with a frame or header that cannot be.",
)

_SUMS = ("received_bytes", "sent_bytes", "pauses", "undecodable")


class Connections:
    """Counts connections as they open and close, and what each has counted itself."""

    def __init__(self) -> None:
        self.opened: Counter[Labels] = Counter()
        self.closed: Counter[Labels] = Counter()
        self._open: dict[Connection, str] = {}
        # What connections that are closed had counted, by protocol and attribute.
        self._past: Counter[tuple[str, str]] = Counter()

    def __call__(self, event: ConnectionEvent) -> None:
        """Connection listener."""
        protocol, connection = event.protocol, event.connection
        where = protocol, event.peer.listener
        if event.cause is None:
            self.opened[where] += 1
            self._open[connection] = protocol
        elif self._open.pop(connection, None) is not None:
            self.closed[(*where, event.cause)] += 1
            for name in _SUMS:
                self._past[protocol, name] += getattr(connection, name, 0)

    @property
    def open(self) -> Counter[Labels]:
        """The open ones, by protocol and listener."""
        return Counter((protocol, connection.peer.listener) for connection, protocol in self._open.items())

    def causes(self, protocol: str) -> Counter[str]:
        """The closed ones of a protocol, by cause."""
        counts: Counter[str] = Counter()
        for (name, _, cause), count in self.closed.items():
            if name == protocol:
                counts[cause] += count
        return counts

    def sums(self) -> Counter[tuple[str, str]]:
        """What all connections there are and were have counted, by protocol and attribute."""
        sums = self._past.copy()
        for connection, protocol in self._open.items():
            for name in _SUMS:
                sums[protocol, name] += getattr(connection, name, 0)
        return sums

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module."""
        protocols = {protocol for protocol, _ in self.opened}
        sums = self.sums()
        found = self.open
        yield OPENED, dict(self.opened)
        yield CLOSED, dict(self.closed)
        # One that has no connections now has none, rather than no series.
        yield OPEN, {where: found[where] for where in self.opened}
        octets: dict[Labels, int] = {}
        for protocol in protocols:
            octets[protocol, "in"] = sums[protocol, "received_bytes"]
            octets[protocol, "out"] = sums[protocol, "sent_bytes"]
        yield BYTES, octets
        yield PAUSES, {(protocol,): sums[protocol, "pauses"] for protocol in protocols}
        yield UNDECODABLE, {(): sums["remoting", "undecodable"]}

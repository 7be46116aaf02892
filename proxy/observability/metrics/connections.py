"""Metrics of client connections, by protocol and listener. At any time, opened = open + closed by cause."""

from collections import Counter
from collections.abc import Iterator

from proxy.core.connections import Connection, ConnectionEvent
from proxy.observability.metrics.family import Family, Kind, Labels, Samples

_ORIGIN = ("protocol", "listener")
OPENED = Family(
    "gantry_connections_opened", Kind.COUNTER, "Client connections opened, after protocol detection.", _ORIGIN
)
CLOSED = Family("gantry_connections_closed", Kind.COUNTER, "Client connections closed, by cause.", (*_ORIGIN, "cause"))
OPEN = Family("gantry_connections", Kind.GAUGE, "Open client connections.", _ORIGIN)
BYTES = Family(
    "gantry_connection_bytes",
    Kind.COUNTER,
    "Bytes read from clients (in) and written to them (out), without the TLS overhead.",
    ("protocol", "direction"),
)
PAUSES = Family(
    "gantry_read_pauses",
    Kind.COUNTER,
    "Times that reading from a client connection was paused, because it had too many in-flight requests, did not read "
    "its replies, or its broker was congested.",
    ("protocol",),
)
ENDED_POLLS = Family(
    "gantry_ended_polls",
    Kind.COUNTER,
    "Long polls of remoting clients that were answered early, because their connection had stayed at the limit of "
    "in-flight requests.",
)
UNDECODABLE = Family(
    "gantry_undecodable_requests", Kind.COUNTER, "Remoting requests of clients with an invalid frame or header."
)

# Counts that each connection keeps itself.
_SUMS = ("received_bytes", "sent_bytes", "pauses", "ended_polls", "undecodable")


class ConnectionCounts:
    """Counts of client connections, and the sums of their own counts."""

    def __init__(self) -> None:
        self.opened: Counter[Labels] = Counter()
        self.closed: Counter[Labels] = Counter()
        self._open: dict[Connection, str] = {}
        # Counts of closed connections, by protocol and attribute.
        self._closed_sums: Counter[tuple[str, str]] = Counter()

    def __call__(self, event: ConnectionEvent) -> None:
        """Connection listener: count a connection that opens or closes."""
        protocol, connection = event.protocol, event.connection
        origin = protocol, event.peer.listener
        if event.cause is None:
            self.opened[origin] += 1
            self._open[connection] = protocol
        elif self._open.pop(connection, None) is not None:
            self.closed[(*origin, event.cause)] += 1
            for name in _SUMS:
                self._closed_sums[protocol, name] += getattr(connection, name, 0)

    @property
    def open(self) -> Counter[Labels]:
        """Number of open connections by protocol and listener."""
        return Counter((protocol, connection.peer.listener) for connection, protocol in self._open.items())

    def causes(self, protocol: str) -> Counter[str]:
        """Return the number of closed connections of a protocol by cause."""
        counts: Counter[str] = Counter()
        for (name, _, cause), count in self.closed.items():
            if name == protocol:
                counts[cause] += count
        return counts

    def sums(self) -> Counter[tuple[str, str]]:
        """Return the sums over all open and closed connections, by protocol and attribute."""
        sums = self._closed_sums.copy()
        for connection, protocol in self._open.items():
            for name in _SUMS:
                sums[protocol, name] += getattr(connection, name, 0)
        return sums

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        protocols = {protocol for protocol, _ in self.opened}
        sums = self.sums()
        open_connections = self.open
        yield OPENED, dict(self.opened)
        yield CLOSED, dict(self.closed)
        # A listener without open connections keeps its series, at 0.
        yield OPEN, {origin: open_connections[origin] for origin in self.opened}
        octets: dict[Labels, int] = {}
        for protocol in protocols:
            octets[protocol, "in"] = sums[protocol, "received_bytes"]
            octets[protocol, "out"] = sums[protocol, "sent_bytes"]
        yield BYTES, octets
        yield PAUSES, {(protocol,): sums[protocol, "pauses"] for protocol in protocols}
        yield ENDED_POLLS, {(): sums["remoting", "ended_polls"]}
        yield UNDECODABLE, {(): sums["remoting", "undecodable"]}

"""Metrics of the connections to brokers and name servers."""

from collections import Counter
from collections.abc import Iterator

from proxy.observability.metrics.family import Family, Kind, Samples
from remoting.connection import RemotingConnection

OPEN = Family("gantry_upstream_connections", Kind.GAUGE, "Open connections to brokers and name servers.")
OPENED = Family("gantry_upstream_connections_opened", Kind.COUNTER, "Connections opened to brokers and name servers.")
CLOSED = Family(
    "gantry_upstream_connections_closed",
    Kind.COUNTER,
    "Closed connections to brokers and name servers, by cause.",
    ("cause",),
)
FAILED = Family("gantry_upstream_dial_failures", Kind.COUNTER, "Failed attempts to connect to a broker or name server.")
TLS_FAILURES = Family(
    "gantry_upstream_tls_failures",
    Kind.COUNTER,
    "Failed TLS handshakes with brokers and name servers, by OpenSSL's reason or the certificate's problem.",
    ("reason",),
)
BYTES = Family(
    "gantry_upstream_bytes",
    Kind.COUNTER,
    "Bytes read from brokers and name servers (in) and written to them (out).",
    ("direction",),
)
UNKNOWN = Family(
    "gantry_upstream_unknown_responses",
    Kind.COUNTER,
    "Responses of brokers and name servers to no request, also not to one that has timed out.",
)
# Counts that each connection keeps itself.
_SUMS = ("received_bytes", "sent_bytes", "responses", "unknown_responses", "undecodable")


class UpstreamCounts:
    """Counts of upstream connections, and sums of their own counts. failed: number of failed attempts to connect.

    tls_failures: number of those that failed in the TLS handshake, by cause.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.tls_failures: Counter[str] = Counter()
        self._opened = 0
        self._closed: Counter[str] = Counter()
        self._open: set[RemotingConnection] = set()
        self._closed_sums: Counter[str] = Counter()

    def opened(self, connection: RemotingConnection) -> None:
        """Count a connection that has opened."""
        self._opened += 1
        self._open.add(connection)

    def closed(self, connection: RemotingConnection) -> None:
        """Count a connection that has closed."""
        if connection in self._open:
            self._open.remove(connection)
            self._closed[str(connection.cause)] += 1
            for name in _SUMS:
                self._closed_sums[name] += getattr(connection, name)

    def responses(self) -> int:
        """Return the number of responses received."""
        return self._sum("responses")

    def undecodable(self) -> int:
        """Return the number of invalid frames and headers received."""
        return self._sum("undecodable")

    def _sum(self, name: str) -> int:
        return self._closed_sums[name] + sum(int(getattr(connection, name)) for connection in self._open)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        yield OPEN, {(): len(self._open)}
        yield OPENED, {(): self._opened}
        yield CLOSED, {(cause,): count for cause, count in self._closed.items()}
        yield FAILED, {(): self.failed}
        yield TLS_FAILURES, {(cause,): count for cause, count in self.tls_failures.items()}
        yield UNKNOWN, {(): self._sum("unknown_responses")}
        yield BYTES, {("in",): self._sum("received_bytes"), ("out",): self._sum("sent_bytes")}

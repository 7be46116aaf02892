"""Connections to brokers and name servers: the open ones, and what those that are closed had counted."""

from collections import Counter
from collections.abc import Iterator

from proxy.observability.metrics.family import Family, Kind, Samples
from remoting.connection import RemotingConnection

OPEN = Family("gantry_upstream_connections", Kind.GAUGE, "Open connections to brokers and name servers.")
OPENED = Family(
    "gantry_upstream_connections_opened", Kind.COUNTER, "Connections to brokers and name servers that were made."
)
CLOSED = Family(
    "gantry_upstream_connections_closed",
    Kind.COUNTER,
    "Connections to brokers and name servers that ended, by cause.",
    ("cause",),
)
FAILED = Family("gantry_upstream_dial_failures", Kind.COUNTER, "Connections to brokers and name servers that failed.")
BYTES = Family(
    "gantry_upstream_bytes", Kind.COUNTER, "Bytes read from brokers and name servers and written there.", ("direction",)
)
_SUMS = ("received_bytes", "sent_bytes", "answers", "undecodable")


class Upstreams:
    """Counts our own connections as links make and lose them."""

    def __init__(self) -> None:
        self.made = self.failed = 0
        self.closed: Counter[str] = Counter()
        self._open: set[RemotingConnection] = set()
        self._past: Counter[str] = Counter()

    def opened(self, connection: RemotingConnection) -> None:
        """A connection was made."""
        self.made += 1
        self._open.add(connection)

    def ended(self, connection: RemotingConnection) -> None:
        """A connection is gone."""
        if connection in self._open:
            self._open.remove(connection)
            self.closed[str(connection.cause)] += 1
            for name in _SUMS:
                self._past[name] += getattr(connection, name)

    def answers(self) -> int:
        """Answers to requests of ours."""
        return self._sum("answers")

    def undecodable(self) -> int:
        """Frames and headers that could not be."""
        return self._sum("undecodable")

    def _sum(self, name: str) -> int:
        return self._past[name] + sum(int(getattr(connection, name)) for connection in self._open)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module."""
        yield OPEN, {(): len(self._open)}
        yield OPENED, {(): self.made}
        yield CLOSED, {(cause,): count for cause, count in self.closed.items()}
        yield FAILED, {(): self.failed}
        yield BYTES, {("in",): self._sum("received_bytes"), ("out",): self._sum("sent_bytes")}

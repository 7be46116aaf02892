"""Metrics of protocol detection and TLS handshakes."""

from collections import Counter
from collections.abc import Iterator, Mapping

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import Peer
from proxy.observability.metrics.family import Family, Kind, Labels, Samples

NEGOTIATIONS = Family(
    "gantry_negotiations",
    Kind.COUNTER,
    "Accepted connections, by detected protocol or by the reason for which they were rejected.",
    ("listener", "outcome"),
)
HANDSHAKES = Family("gantry_tls_handshakes", Kind.COUNTER, "Completed TLS handshakes, by TLS version.", ("version",))
FAILED_HANDSHAKES = Family(
    "gantry_tls_failures",
    Kind.COUNTER,
    "Failed TLS handshakes, by reason: OpenSSL's, a client certificate's problem, `lost` if the client disconnected, "
    "`timeout`, or `flood` for too many bytes.",
    ("reason",),
)


class NegotiationCounts:
    """Counts of outcomes and handshakes. failures: failed handshakes by reason, one mapping per listener."""

    def __init__(self) -> None:
        self.outcomes: Counter[Labels] = Counter()
        self.handshakes: Counter[str] = Counter()
        self.failures: list[Mapping[str, int]] = []

    def __call__(self, outcome: Outcome, peer: Peer, _: bytes) -> None:
        """Negotiation listener: count an outcome."""
        self.outcomes[peer.listener, outcome.value] += 1
        if peer.tls is not None:
            self.handshakes[peer.tls.version] += 1

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        failures: Counter[str] = Counter()
        for counts in self.failures:
            failures.update(counts)
        yield NEGOTIATIONS, dict(self.outcomes)
        yield HANDSHAKES, {(version,): count for version, count in self.handshakes.items()}
        yield FAILED_HANDSHAKES, {(reason,): count for reason, count in failures.items()}

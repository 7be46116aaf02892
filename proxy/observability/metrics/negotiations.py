"""Negotiations: what accepted connections turned out to be, and how TLS went."""

from collections import Counter
from collections.abc import Iterator, Mapping

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import Peer
from proxy.observability.metrics.family import Family, Kind, Labels, Samples

NEGOTIATIONS = Family(
    "gantry_negotiations",
    Kind.COUNTER,
    "Accepted connections by what they turned out to be, or why they were refused.",
    ("listener", "outcome"),
)
HANDSHAKES = Family(
    "gantry_tls_handshakes",
    Kind.COUNTER,
    "TLS handshakes that clients completed, by version.",
    ("version",),
)
FAILED_HANDSHAKES = Family(
    "gantry_tls_failures",
    Kind.COUNTER,
    "TLS handshakes that failed, by OpenSSL's reason; lost: the client left; timeout: it was not done in time.",
    ("reason",),
)


class Negotiations:
    """Counts outcomes. failures: TLS handshakes that failed, by reason, as the listeners keep them."""

    def __init__(self) -> None:
        self.outcomes: Counter[Labels] = Counter()
        self.handshakes: Counter[str] = Counter()
        self.failures: list[Mapping[str, int]] = []

    def __call__(self, outcome: Outcome, peer: Peer, _: bytes) -> None:
        """What a listener calls."""
        self.outcomes[peer.listener, outcome.value] += 1
        if peer.tls is not None:
            self.handshakes[peer.tls.version] += 1

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module."""
        failures: Counter[str] = Counter()
        for counts in self.failures:
            failures.update(counts)
        yield NEGOTIATIONS, dict(self.outcomes)
        yield HANDSHAKES, {(version,): count for version, count in self.handshakes.items()}
        yield FAILED_HANDSHAKES, {(reason,): count for reason, count in failures.items()}

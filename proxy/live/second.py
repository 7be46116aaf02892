"""One second of traffic, summed up; sans-io."""

from bisect import bisect_left
from itertools import accumulate

from proxy.observation import POLLS, Observation

# Upper bounds of latencies in milliseconds, each 1.25 times the one before: percentiles are exact to a quarter.
_BOUNDS = [0.1 * 1.25**step for step in range(64)]
# Topics and groups that one second tells apart; what is beyond goes under one name.
MOST = 2_000
OTHERS = "(others)"
# They take as long as their client wants them to: no latency to speak of.
_POLLS = POLLS | {"Telemetry"}
_IN = frozenset({"SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SendMessage"})
_OUT = _POLLS | {"PEEK_MESSAGE"}


class Sums:
    """Requests, those of them that failed, messages sent and delivered, bytes of bodies in and out."""

    __slots__ = ("bytes_in", "bytes_out", "delivered", "failed", "requests", "sent")

    def __init__(self) -> None:
        self.requests = self.failed = self.sent = self.delivered = self.bytes_in = self.bytes_out = 0

    def add(self, seen: Observation) -> None:
        """One more request."""
        self.requests += 1
        if not seen.ok:
            self.failed += 1
        if seen.code in _IN:
            self.sent += seen.messages
        elif seen.code in _OUT:
            self.delivered += seen.messages
        self.bytes_in += seen.bytes_in
        self.bytes_out += seen.bytes_out

    def join(self, other: "Sums", times: int = 1) -> None:
        """Add another second's; -1 times: take it away again."""
        self.requests += times * other.requests
        self.failed += times * other.failed
        self.sent += times * other.sent
        self.delivered += times * other.delivered
        self.bytes_in += times * other.bytes_in
        self.bytes_out += times * other.bytes_out

    def shown(self, seconds: float = 1.0) -> dict[str, float]:
        """All of it, per second."""
        return {name: round(getattr(self, name) / seconds, 2) for name in Sums.__slots__}


class Second:
    """What was answered within one second. `at`: seconds since 1970."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.protocols = {"remoting": Sums(), "grpc": Sums()}
        self.topics: dict[str, Sums] = {}
        self.groups: dict[str, Sums] = {}
        self.codes: dict[str, int] = {}
        self._latencies = [0] * (len(_BOUNDS) + 1)

    def add(self, seen: Observation) -> None:
        """A request has been answered."""
        self.protocols[seen.protocol].add(seen)
        self.codes[seen.code] = self.codes.get(seen.code, 0) + 1
        if seen.topic:
            _add(self.topics, seen.topic, seen)
        if seen.group:
            _add(self.groups, seen.group, seen)
        if seen.code not in _POLLS:
            self._latencies[bisect_left(_BOUNDS, seen.seconds * 1000)] += 1

    def percentile(self, share: float) -> float | None:
        """The latency in ms below which this share of the requests but polls were; None: there were none."""
        counts = list(accumulate(self._latencies))
        total = counts[-1]
        if not total:
            return None
        place = bisect_left(counts, share * total)
        return round(_BOUNDS[min(place, len(_BOUNDS) - 1)], 3)

    def shown(self) -> dict[str, object]:
        """The totals."""
        return {
            "at": self.at,
            **{name: sums.shown() for name, sums in self.protocols.items()},
            "p50": self.percentile(0.5),
            "p99": self.percentile(0.99),
        }


def _add(table: dict[str, Sums], name: str, seen: Observation) -> None:
    sums = table.get(name)
    if sums is None:
        if len(table) >= MOST:
            name = OTHERS
        sums = table.setdefault(name, Sums())
    sums.add(seen)

"""Sums of requests over a span of time, and percentiles of their latencies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from proxy.observability.metrics.request_families import ACTIONS, BOUNDS, DELIVERIES

# The name of everything beyond a limit on names.
OTHERS = "(others)"
_OUT = DELIVERIES | {"PEEK_MESSAGE"}


class Sums:
    """Requests, failed requests, messages sent and delivered, bytes of bodies in and out."""

    __slots__ = ("bytes_in", "bytes_out", "delivered", "failed", "requests", "sent")

    def __init__(self) -> None:
        self.requests = self.failed = self.sent = self.delivered = self.bytes_in = self.bytes_out = 0

    @classmethod
    def of(cls, code: str, ok: bool, requests: int, messages: int, bytes_in: int, bytes_out: int) -> "Sums":
        """Return the sums of requests of one code with one outcome."""
        sums = cls()
        sums.requests, sums.bytes_in, sums.bytes_out = requests, bytes_in, bytes_out
        if not ok:
            sums.failed = requests
        if ACTIONS.get(code) == "sent":
            sums.sent = messages
        elif code in _OUT:
            sums.delivered = messages
        return sums

    def add(self, other: "Sums", times: int = 1) -> None:
        """Add other sums; -1 times: subtract them."""
        self.requests += times * other.requests
        self.failed += times * other.failed
        self.sent += times * other.sent
        self.delivered += times * other.delivered
        self.bytes_in += times * other.bytes_in
        self.bytes_out += times * other.bytes_out

    def per_second(self, seconds: float = 1.0) -> dict[str, float]:
        """Return the sums of some seconds, per second."""
        return {name: round(getattr(self, name) / seconds, 2) for name in Sums.__slots__}


# Sums by name.
Table = dict[str, Sums]


@dataclass(slots=True)
class Second:
    """Requests answered within one second, or within a longer span that begins at `at` (seconds since 1970).

    latencies: requests, without polls, by bucket of `BOUNDS`.
    """

    at: int
    protocols: dict[str, Sums] = field(default_factory=lambda: {"remoting": Sums(), "grpc": Sums()})
    topics: Table = field(default_factory=dict)
    groups: Table = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    latencies: dict[int, int] = field(default_factory=dict)

    def add_totals(self, other: "Second") -> None:
        """Add the totals of another second."""
        for name, sums in other.protocols.items():
            self.protocols[name].add(sums)
        for bucket, count in other.latencies.items():
            self.latencies[bucket] = self.latencies.get(bucket, 0) + count


def add_to(table: Table, name: str, sums: Sums, limit: int) -> None:
    """Add sums to a name's; names beyond the limit share `OTHERS`."""
    known = table.get(name)
    if known is None:
        known = table.setdefault(name if len(table) < limit else OTHERS, Sums())
    known.add(sums)


def percentile(latencies: Mapping[int, int], share: float) -> float | None:
    """Return the latency in ms that this share of requests does not exceed; None without requests.

    Within a bucket, latencies count as evenly distributed.
    """
    buckets = sorted(bucket for bucket, count in latencies.items() if count)
    if not buckets:
        return None
    counts = list(accumulate(latencies[bucket] for bucket in buckets))
    rank = share * counts[-1]
    position = next(index for index, count in enumerate(counts) if count >= rank)
    bucket = buckets[position]
    low = BOUNDS[bucket - 1] if bucket else 0.0
    high = BOUNDS[bucket] if bucket < len(BOUNDS) else low
    before = counts[position] - latencies[bucket]
    return round((low + (high - low) * (rank - before) / latencies[bucket]) * 1000, 3)


def add_counts(values: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sums of counts with the same key."""
    counts: dict[int, int] = {}
    for value in values:
        for key, count in value.items():
            counts[key] = counts.get(key, 0) + count
    return counts

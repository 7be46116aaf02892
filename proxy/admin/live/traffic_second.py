"""The sums of one second of traffic; sans-io."""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

from proxy.core.events import LONG_POLLS, Observation

# Upper bounds of the latency buckets in ms. Each is 1.25 times the one before, so percentiles are exact to 25 %.
_BOUNDS = [0.1 * 1.25**step for step in range(64)]
# Topics, and groups, that one second has sums for; all others share one name.
MAX_NAMES = 2_000
OTHERS = "(others)"
# Long polls, whose latency depends on the client's timeout.
_POLLS = LONG_POLLS | {"Telemetry"}
_IN = frozenset({"SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SendMessage"})
_OUT = _POLLS | {"PEEK_MESSAGE"}


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
        if code in _IN:
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


class Second:
    """Requests answered within one second. `at`: seconds since 1970. The sums are set by `complete`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.protocols = {"remoting": Sums(), "grpc": Sums()}
        self.topics: dict[str, Sums] = {}
        self.groups: dict[str, Sums] = {}
        self.codes: dict[str, int] = {}
        # Requests, messages, and bytes in and out, by protocol, code, outcome, topic and group.
        self._counts: dict[tuple[str, str, bool, str | None, str | None], list[int]] = {}
        self._latencies = [0] * (len(_BOUNDS) + 1)

    def add(self, observation: Observation) -> None:
        """Count an answered request."""
        key = (observation.protocol, observation.code, observation.ok, observation.topic, observation.group)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += observation.messages
        counts[2] += observation.bytes_in
        counts[3] += observation.bytes_out
        if observation.code not in _POLLS:
            self._latencies[bisect_left(_BOUNDS, observation.seconds * 1000)] += 1

    def complete(self) -> None:
        """Compute the sums at the end of the second."""
        for (protocol, code, ok, topic, group), counts in self._counts.items():
            sums = Sums.of(code, ok, *counts)
            self.protocols[protocol].add(sums)
            self.codes[code] = self.codes.get(code, 0) + sums.requests
            if topic:
                _add(self.topics, topic, sums)
            if group:
                _add(self.groups, group, sums)
        self._counts.clear()

    @property
    def latencies(self) -> dict[int, int]:
        """Requests, without polls, by latency bucket; see `percentile`."""
        return {bucket: count for bucket, count in enumerate(self._latencies) if count}


def percentile(latencies: Mapping[int, int], share: float) -> float | None:
    """Return the latency in ms that this share of requests does not exceed; None without requests."""
    buckets = sorted(latencies)
    counts = list(accumulate(latencies[bucket] for bucket in buckets))
    if not counts:
        return None
    bucket = buckets[bisect_left(counts, share * counts[-1])]
    return round(_BOUNDS[min(bucket, len(_BOUNDS) - 1)], 3)


def _add(table: dict[str, Sums], name: str, sums: Sums) -> None:
    known = table.get(name)
    if known is None:
        if len(table) >= MAX_NAMES:
            name = OTHERS
        known = table.setdefault(name, Sums())
    known.add(sums)

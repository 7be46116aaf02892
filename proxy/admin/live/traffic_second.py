"""One second of traffic, summed up; sans-io."""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

from proxy.core.events import LONG_POLLS, Observation

# Upper bounds of latencies in milliseconds, each 1.25 times the one before: percentiles are exact to a quarter.
_BOUNDS = [0.1 * 1.25**step for step in range(64)]
# Topics and groups that one second tells apart; what is beyond goes under one name.
MAX = 2_000
OTHERS = "(others)"
# They take as long as their client wants them to: no latency to speak of.
_POLLS = LONG_POLLS | {"Telemetry"}
_IN = frozenset({"SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SendMessage"})
_OUT = _POLLS | {"PEEK_MESSAGE"}


class Sums:
    """Requests, those of them that failed, messages sent and delivered, bytes of bodies in and out."""

    __slots__ = ("bytes_in", "bytes_out", "delivered", "failed", "requests", "sent")

    def __init__(self) -> None:
        self.requests = self.failed = self.sent = self.delivered = self.bytes_in = self.bytes_out = 0

    @classmethod
    def of(cls, code: str, ok: bool, requests: int, messages: int, bytes_in: int, bytes_out: int) -> "Sums":
        """Requests of one code that all failed, or did not."""
        sums = cls()
        sums.requests, sums.bytes_in, sums.bytes_out = requests, bytes_in, bytes_out
        if not ok:
            sums.failed = requests
        if code in _IN:
            sums.sent = messages
        elif code in _OUT:
            sums.delivered = messages
        return sums

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
    """What was answered within one second. `at`: seconds since 1970. The sums are there once it is complete."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.protocols = {"remoting": Sums(), "grpc": Sums()}
        self.topics: dict[str, Sums] = {}
        self.groups: dict[str, Sums] = {}
        self.codes: dict[str, int] = {}
        # Requests that are alike, with how many they are, their messages, and bytes in and out.
        self._alike: dict[tuple[str, str, bool, str | None, str | None], list[int]] = {}
        self._latencies = [0] * (len(_BOUNDS) + 1)

    def add(self, seen: Observation) -> None:
        """A request has been answered."""
        kind = (seen.protocol, seen.code, seen.ok, seen.topic, seen.group)
        counts = self._alike.get(kind)
        if counts is None:
            counts = self._alike[kind] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += seen.messages
        counts[2] += seen.bytes_in
        counts[3] += seen.bytes_out
        if seen.code not in _POLLS:
            self._latencies[bisect_left(_BOUNDS, seen.seconds * 1000)] += 1

    def complete(self) -> None:
        """It is over: sum up."""
        for (protocol, code, ok, topic, group), counts in self._alike.items():
            sums = Sums.of(code, ok, *counts)
            self.protocols[protocol].join(sums)
            self.codes[code] = self.codes.get(code, 0) + sums.requests
            if topic:
                _join(self.topics, topic, sums)
            if group:
                _join(self.groups, group, sums)
        self._alike.clear()

    @property
    def latencies(self) -> dict[int, int]:
        """How many requests but polls took how long: counts by what `percentile` makes latencies of."""
        return {place: count for place, count in enumerate(self._latencies) if count}

    def shown(self) -> dict[str, object]:
        """The totals."""
        latencies = self.latencies
        return {
            "at": self.at,
            **{name: sums.shown() for name, sums in self.protocols.items()},
            "p50": percentile(latencies, 0.5),
            "p99": percentile(latencies, 0.99),
        }


def percentile(latencies: Mapping[int, int], share: float) -> float | None:
    """The latency in ms below which this share of the requests but polls were; None: there were none."""
    places = sorted(latencies)
    counts = list(accumulate(latencies[place] for place in places))
    if not counts:
        return None
    place = places[bisect_left(counts, share * counts[-1])]
    return round(_BOUNDS[min(place, len(_BOUNDS) - 1)], 3)


def _join(table: dict[str, Sums], name: str, sums: Sums) -> None:
    known = table.get(name)
    if known is None:
        if len(table) >= MAX:
            name = OTHERS
        known = table.setdefault(name, Sums())
    known.join(sums)

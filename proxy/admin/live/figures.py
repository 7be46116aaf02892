"""The figures that the live page shows, of one worker and of all."""

import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from proxy.observability.metrics.process import product_version
from proxy.operations import connected_clients
from proxy.operations.brokers import Broker, brokers
from proxy.operations.history.second import Second, percentile
from proxy.operations.operation import operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries, merge_by_key
from proxy.operations.values import Answer, Mergeable, Rules, concatenation, largest, total, union

# Topics and groups in a reply, and events.
MAX_ROWS = 40
_MAX_EVENTS = 40
# Topics and groups in a snapshot for another worker: the busiest of all workers may be less busy at each.
_MAX_SNAPSHOT_ROWS = 10 * MAX_ROWS


class SecondFigures(Answer):
    """One second of traffic. at: seconds since 1970; latencies: counts by histogram bucket."""

    at: int
    remoting: dict[str, float]
    grpc: dict[str, float]
    latencies: dict[int, int]

    def present(self) -> dict[str, Any]:
        """Return the second with percentiles in ms."""
        return {
            "at": self.at,
            "remoting": self.remoting,
            "grpc": self.grpc,
            "p50": percentile(self.latencies, 0.5),
            "p99": percentile(self.latencies, 0.99),
        }


class RowFigures(Answer):
    """The last minute of a topic or group. sums: per second; trend: requests of each second, the newest last."""

    name: str
    sums: dict[str, float]
    trend: list[int]


def add_counts(values: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    """Return the sums of counts with the same key."""
    counts: Counter[Any] = Counter()
    for value in values:
        counts.update(value)
    return dict(counts)


def _add_figures(values: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for value in values:
        for name, figure in value.items():
            sums[name] = round(sums.get(name, 0) + figure, 2)
    return sums


def merge_seconds(values: Sequence[Sequence[SecondFigures]]) -> list[SecondFigures]:
    """Merge the seconds that are complete at all workers: each is reported once, and a worker may be behind."""
    if not all(values):
        return []
    last = min(seconds[-1].at for seconds in values)
    parts: dict[int, list[SecondFigures]] = {}
    for seconds in values:
        for second in seconds:
            if second.at <= last:
                parts.setdefault(second.at, []).append(second)
    return [
        SecondFigures(
            at=at,
            remoting=_add_figures(second.remoting for second in seconds),
            grpc=_add_figures(second.grpc for second in seconds),
            latencies=add_counts(second.latencies for second in seconds),
        )
        for at, seconds in sorted(parts.items())
    ]


def merge_rows(values: Sequence[Sequence[RowFigures]]) -> list[RowFigures]:
    """Merge the rows of topics or groups, the busiest first. Trends end at the same second."""
    by_name: dict[str, list[RowFigures]] = {}
    for row in concatenation(values):
        by_name.setdefault(row.name, []).append(row)
    rows = [
        RowFigures(
            name=name, sums=_add_figures(row.sums for row in rows), trend=_add_trends([row.trend for row in rows])
        )
        for name, rows in by_name.items()
    ]
    return sorted(rows, key=lambda row: (-row.sums["requests"], row.name))


def _add_trends(trends: Sequence[Sequence[int]]) -> list[int]:
    length = max(map(len, trends))
    return [sum(trend[-back] for trend in trends if back <= len(trend)) for back in range(length, 0, -1)]


class Figures(Mergeable):
    """The figures of one worker, or of all."""

    MERGE_RULES: ClassVar[Rules] = {
        "now": largest,
        "uptime": largest,
        "listeners": union,
        "ready": all,
        "draining": any,
        "connections": add_counts,
        "clients": total,
        "busy": total,
        "request_bytes": total,
        "held": total,
        "negotiations": add_counts,
        "codes": add_counts,
        "brokers": lambda values: merge_by_key([(0, broker) for broker in concatenation(values)]),
        "seconds": merge_seconds,
        "topics": merge_rows,
        "groups": merge_rows,
        "events": concatenation,
    }

    now: float
    replica: str
    release: str
    listeners: list[str]
    uptime: float
    ready: bool
    reasons: list[str]
    draining: bool
    connections: dict[str, int]
    clients: int
    busy: int
    request_bytes: int
    held: int
    negotiations: dict[str, int]
    brokers: list[Broker]
    seconds: list[SecondFigures]
    topics: list[RowFigures]
    groups: list[RowFigures]
    codes: dict[str, int]
    events: list[dict[str, Any]]

    @classmethod
    def merge(cls, items: Sequence[tuple[int, Self]]) -> Self:
        """Merge the figures; a reason that not all workers, or replicas, give is reported with those that give it."""
        several_replicas = len({figures.replica for _, figures in items}) > 1
        sources: dict[str, list[str]] = {}
        for worker, figures in items:
            for reason in figures.reasons:
                sources.setdefault(reason, []).append(figures.replica if several_replicas else str(worker))
        kind = "" if several_replicas else "worker "
        reasons = [
            reason if len(names) == len(items) else f"{kind}{', '.join(names)}: {reason}"
            for reason, names in sources.items()
        ]
        return super().merge(items).model_copy(update={"reasons": reasons})

    def present(self) -> dict[str, Any]:
        """Return the reply for the page."""
        return {
            **self.model_dump(exclude_unset=True),
            "seconds": [second.present() for second in self.seconds],
            "topics": _present_rows(self.topics),
            "groups": _present_rows(self.groups),
            "events": sorted(self.events, key=lambda event: -float(event["at"]))[:_MAX_EVENTS],
        }


def _present_rows(rows: Sequence[RowFigures]) -> list[dict[str, Any]]:
    return [{"name": row.name, **row.sums, "trend": row.trend} for row in rows[:MAX_ROWS]]


@dataclass(frozen=True, slots=True)
class FiguresQuery:
    """The seconds after `since`; rows whose names contain `topic` or `group`, in lower case."""

    since: int
    topic: str
    group: str


class LiveFigures:
    """The source of a worker's figures."""

    def __init__(self, services: AdminServices) -> None:
        self.services = services
        self._history = services.history
        self._release = product_version()

    def read(self, query: FiguresQuery) -> Figures:
        """Return the figures."""
        services, replica = self.services, self.services.replica
        health = services.health.report("/readyz")
        rows = _MAX_SNAPSHOT_ROWS if services.workers.several else MAX_ROWS
        return Figures(
            now=time.time(),
            replica=replica.settings.replica or socket.gethostname(),
            release=self._release,
            listeners=[str(address) for address in replica.addresses],
            uptime=time.time() - services.started,
            ready=health.ok,
            reasons=[f"{check.aspect}: {check.text}" for check in health.checks if check.text],
            draining=replica.core.drain.draining,
            connections={"remoting": len(replica.channels), "grpc": len(replica.grpc.server.connections)},
            clients=connected_clients.count(replica),
            busy=replica.core.active_requests,
            request_bytes=replica.core.budget.used,
            held=len(replica.grpc.renewal),
            negotiations=self._negotiations(),
            brokers=brokers(replica),
            seconds=[_second(second) for second in self._history.seconds(query.since)],
            topics=self._rows("topics", rows, query.topic),
            groups=self._rows("groups", rows, query.group),
            codes=self._history.codes(),
            events=self._events(),
        )

    def _negotiations(self) -> dict[str, int]:
        """Return connections by the outcome of negotiation, over all listeners."""
        counts: dict[str, int] = {}
        for (_, outcome), count in self.services.replica.metrics.negotiations.outcomes.items():
            counts[outcome] = counts.get(outcome, 0) + count
        return counts

    def _rows(self, kind: str, limit: int, text: str) -> list[RowFigures]:
        return [
            RowFigures(name=name, sums=sums, trend=trend)
            for name, sums, trend in self._history.busiest(kind, limit, text)
        ]

    def _events(self) -> list[dict[str, Any]]:
        """Return the last protocol errors and closed connections."""
        events: list[dict[str, Any]] = [
            {
                "at": violation.at,
                "kind": "error",
                "text": f"{violation.where}: {violation.kind} from {violation.address} {violation.text}".rstrip(),
                "first": violation.first.hex(" "),
            }
            for _, violation in self.services.events.violations.newest()
        ]
        events += [
            {
                "at": end.at,
                "kind": "closed",
                "text": f"{end.protocol} {end.client_id or end.address} closed: {end.cause}"
                f" after {end.age:.0f} s, {end.requests} requests",
            }
            for _, end in self.services.events.closed.newest()
        ]
        return sorted(events, key=lambda event: -float(event["at"]))[:_MAX_EVENTS]


def _second(second: Second) -> SecondFigures:
    protocols = {name: sums.per_second() for name, sums in second.protocols.items()}
    return SecondFigures(at=second.at, **protocols, latencies=second.latencies)


# Seconds for another worker: the page asks every second.
@operation("live.figures", timeout=2.5)
async def read_figures(live: LiveFigures, query: FiguresQuery) -> Entries[Figures]:
    """Return a worker's figures."""
    return Entries(live.services.workers.number, [live.read(query)])

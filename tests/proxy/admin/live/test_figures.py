"""The merge of several workers' live figures."""

from typing import Any

from proxy.admin.live.figures import Figures, RowFigures, SecondFigures
from proxy.observability.metrics.request_counts import RequestCounts
from proxy.operations.history.counter_reader import CounterReader
from proxy.operations.history.second import percentile
from proxy.operations.snapshots import Entries
from tests.proxy.operations.observations import observation


def entries(worker: int, *seconds: SecondFigures, **fields: Any) -> Entries[Figures]:
    values: dict[str, Any] = {
        "now": 1.0,
        "replica": "r",
        "release": "1",
        "uptime": 10.0 * worker,
        "listeners": ["a"],
        "ready": True,
        "reasons": [],
        "draining": False,
        "connections": {"remoting": 1, "grpc": 2},
        "clients": 3,
        "busy": 0,
        "request_bytes": 0,
        "held": 0,
        "codes": {"SEND": 1},
        "negotiations": {},
        "brokers": [],
        "seconds": list(seconds),
        "topics": [],
        "groups": [],
        "events": [],
        **fields,
    }
    return Entries(worker, [Figures(**values)])


def present(*snapshots: Entries[Figures]) -> dict[str, Any]:
    return Entries.merge(snapshots).single.present()


def second(at: int, *milliseconds: float) -> SecondFigures:
    counts = RequestCounts()
    reader = CounterReader(counts)
    for latency in milliseconds:
        counts.observe(observation(seconds=latency / 1000))
    made = reader.read(at)
    remoting, grpc = (sums.per_second() for sums in made.protocols.values())
    return SecondFigures(at=at, remoting=remoting, grpc=grpc, latencies=made.latencies)


def test_seconds_are_those_complete_at_all_workers_with_percentiles_of_all_requests() -> None:
    first = entries(0, second(7, 1, 1), second(8, 1))
    other = entries(1, second(7, 100), second(8, 100), second(9, 1))
    seconds = present(first, other)["seconds"]
    assert [row["at"] for row in seconds] == [7, 8]
    assert seconds[0]["remoting"]["requests"] == 3
    latencies = second(7, 1, 1, 100).latencies
    assert (seconds[0]["p50"], seconds[0]["p99"]) == tuple(percentile(latencies, share) for share in (0.5, 0.99))
    # A worker without complete seconds reports them with the next look.
    assert present(first, entries(1))["seconds"] == []


def test_figures_are_added_and_rows_and_events_sorted() -> None:
    row = RowFigures(name="orders", sums={"requests": 2.5, "sent": 1.0}, trend=[1, 2])
    busy = RowFigures(name="busy", sums={"requests": 9.0, "sent": 1.0}, trend=[1, 2])
    events = [{"at": 1.0}, {"at": 3.0}]
    first = entries(0, topics=[row], events=events, reasons=["slow"], ready=False)
    more = [row.model_copy(update={"trend": [5]}), busy]
    other = entries(1, topics=more, events=[{"at": 2.0}], reasons=["slow", "lost"])
    merged = present(first, other)
    assert merged["connections"] == {"remoting": 2, "grpc": 4}
    assert (merged["clients"], merged["uptime"], merged["ready"]) == (6, 10.0, False)
    assert merged["reasons"] == ["slow", "worker 1: lost"]
    assert [event["at"] for event in merged["events"]] == [3.0, 2.0, 1.0]
    assert [(row["name"], row["requests"], row["trend"]) for row in merged["topics"]] == [
        ("busy", 9.0, [1, 2]),
        ("orders", 5.0, [1, 7]),
    ]

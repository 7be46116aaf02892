"""The live page's figures of several workers."""

from typing import Any

from proxy.admin.http.merging import Told
from proxy.admin.live.merging import figures
from proxy.admin.live.traffic import Traffic
from proxy.admin.live.traffic_second import Second, percentile
from tests.proxy.admin.live.test_traffic import seen


def live(worker: int, seconds: list[Second], **more: Any) -> Told:
    for second in seconds:
        second.complete()
    data = {
        "now": 1.0,
        "replica": "r",
        "uptime": 10.0 * worker,
        "listeners": ["a"],
        "ready": True,
        "reasons": [],
        "draining": False,
        "connections": {"remoting": 1, "grpc": 2},
        "clients": 3,
        "codes": {"SEND": 1},
        "negotiations": {},
        "brokers": [],
        "seconds": [second.shown() for second in seconds],
        "topics": [],
        "groups": [],
        "events": [],
        **more,
    }
    latencies = {str(second.at): {str(place): count for place, count in second.latencies.items()} for second in seconds}
    return Told(worker, data, {"latencies": latencies})


def second(at: int, *milliseconds: float) -> Second:
    made = Second(at)
    for one in milliseconds:
        made.add(seen(seconds=one / 1000))
    return made


def test_seconds_are_those_that_are_complete_everywhere_with_latencies_of_all() -> None:
    first = live(0, [second(7, 1, 1), second(8, 1)])
    other = live(1, [second(7, 100), second(8, 100), second(9, 1)])
    found = figures([first, other], {})["seconds"]
    assert [one["at"] for one in found] == [7, 8]
    assert found[0]["remoting"]["requests"] == 3
    whole = second(7, 1, 1, 100)
    assert (found[0]["p50"], found[0]["p99"]) == tuple(percentile(whole.latencies, share) for share in (0.5, 0.99))
    # The next look has it.
    assert figures([first, live(1, [])], {})["seconds"] == []


def test_figures_are_added_and_events_told_in_their_order() -> None:
    row = {"name": "orders", "requests": 2.5, "sent": 1.0, "trend": [1, 2]}
    first = live(0, [], topics=[row], events=[{"at": 1.0}, {"at": 3.0}], reasons=["slow"], ready=False)
    more = [{**row, "trend": [5]}, {**row, "name": "busy", "requests": 9.0}]
    other = live(1, [], topics=more, events=[{"at": 2.0}], reasons=["slow", "lost"])
    found = figures([first, other], {})
    assert found["connections"] == {"remoting": 2, "grpc": 4}
    assert (found["clients"], found["uptime"], found["ready"]) == (6, 10.0, False)
    assert found["reasons"] == ["slow", "worker 1: lost"]
    assert [event["at"] for event in found["events"]] == [3.0, 2.0, 1.0]
    assert [(one["name"], one["requests"], one["trend"]) for one in found["topics"]] == [
        ("busy", 9.0, [1, 2]),
        ("orders", 5.0, [1, 7]),
    ]


def test_latencies_are_told_of_the_same_seconds_as_the_figures() -> None:
    now = 1_000.5
    traffic = Traffic([], lambda: now)
    traffic.look()
    traffic.seconds(0)
    traffic.observe(seen())
    now += 2
    assert [int(at) for at in traffic.latencies(0)] == []
    assert [one["at"] for one in traffic.seconds(0)] == [1000, 1001]
    told = traffic.latencies(0)
    assert list(told) == ["1000", "1001"]
    assert sum(told["1000"].values()) == 1
    assert traffic.latencies(1000) == {"1001": {}}

"""The sums that the live page shows."""

from random import Random
from typing import Any

import pytest

from protocol_negotiation.peer import HostPort, Peer
from proxy.admin.live import last_minute
from proxy.admin.live.traffic import KEPT, LINGER, RECENT, Traffic
from proxy.admin.live.traffic_second import MAX, OTHERS, Second, percentile
from proxy.core.events import Observation, Observer

PEER = Peer(HostPort("10.0.0.1", 1), HostPort("10.0.0.2", 2))


def seen(code: str = "SEND_MESSAGE_V2", ok: bool = True, seconds: float = 0.002, **more: Any) -> Observation:
    observation = Observation("remoting", code, 0 if ok else 1, ok, PEER, None, 0.0, seconds)
    for name, value in more.items():
        setattr(observation, name, value)
    return observation


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.5

    def __call__(self) -> float:
        return self.now


def watched() -> tuple[Traffic, Clock, list[Observer]]:
    clock: Clock = Clock()
    observers: list[Observer] = []
    traffic = Traffic(observers, clock)
    traffic.look()
    return traffic, clock, observers


def test_a_second() -> None:
    second = Second(7)
    for _ in range(3):
        second.add(seen(topic="orders", group="p", messages=2, bytes_in=10))
    second.add(seen("POP_MESSAGE", topic="orders", group="g", messages=5, bytes_out=50, seconds=9.0))
    second.add(seen(ok=False, topic="orders"))
    second.complete()
    assert second.protocols["remoting"].shown() == {
        "requests": 5,
        "failed": 1,
        "sent": 6,
        "delivered": 5,
        "bytes_in": 30,
        "bytes_out": 50,
    }
    assert second.topics["orders"].requests == 5
    assert (second.groups["p"].sent, second.groups["g"].delivered) == (6, 5)
    # A long poll says nothing of how fast things go.
    p50, p99 = percentile(second.latencies, 0.5), percentile(second.latencies, 0.99)
    assert p50 is not None
    assert 2.0 <= p50 <= 2.5
    assert p99 == p50


@pytest.mark.parametrize("milliseconds", [0.01, 0.5, 3, 77, 1500, 100_000])
def test_percentiles_are_exact_to_a_quarter(milliseconds: float) -> None:
    second = Second(0)
    second.add(seen(seconds=milliseconds / 1000))
    found = percentile(second.latencies, 0.99)
    assert found is not None
    assert milliseconds <= found <= max(milliseconds * 1.25, 0.1) + 0.001


def test_no_request_has_no_latency() -> None:
    assert percentile(Second(0).latencies, 0.5) is None


def test_topics_without_end_go_under_one_name() -> None:
    second = Second(0)
    for number in range(MAX + 50):
        second.add(seen(topic=f"t{number}"))
    second.complete()
    assert len(second.topics) == MAX + 1
    assert second.topics[OTHERS].requests == 50


def test_seconds_come_once_they_are_complete() -> None:
    traffic, clock, _ = watched()
    traffic.observe(seen())
    assert traffic.seconds(0) == []
    clock.now = 1_003.0
    found = traffic.seconds(0)
    assert [(second["at"], second["remoting"]["requests"]) for second in found] == [  # type: ignore[index]
        (1_000, 1),
        (1_001, 0),
        (1_002, 0),
    ]
    assert [second["at"] for second in traffic.seconds(1_001)] == [1_002]
    clock.now = 1_003.0 + 2 * KEPT
    assert traffic.seconds(0) == []


def test_the_busiest_come_first_with_their_trend() -> None:
    traffic, clock, _ = watched()
    for topic, count in (("Orders", 3), ("bills", 1), ("other", 2)):
        for _ in range(count):
            traffic.observe(seen(topic=topic, messages=1))
    clock.now += 1
    traffic.observe(seen(topic="bills", messages=4))
    clock.now += 1
    rows = traffic.busiest("topics", 2)
    assert [(row["name"], row["requests"], row["sent"]) for row in rows] == [("Orders", 1.5, 1.5), ("bills", 1, 2.5)]
    assert [row["trend"] for row in rows] == [[3, 0], [1, 1]]
    assert [row["name"] for row in traffic.busiest("topics", 9, "order")] == ["Orders"]
    assert traffic.codes() == {"SEND_MESSAGE_V2": 7}


def test_the_last_minute_is_what_came_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many seconds have passed, and names come and gone: as if all were added up anew."""
    monkeypatch.setattr(last_minute, "MAX", 12)
    traffic, clock, _ = watched()
    random = Random(6)
    made: list[int] = []
    for _ in range(3 * RECENT):
        count = random.randrange(6)
        made.append(count)
        for _ in range(count):
            # Some in every second, others in one only.
            name = random.choice(("often", f"topic {random.randrange(40)}"))
            traffic.observe(seen(topic=name, group="g", messages=2, ok=random.random() < 0.9))
        clock.now += random.choice((1, 1, 1, 2))
        made += [0] * (int(clock.now) - 1_000 - len(made))
        rows: list[dict[str, Any]] = list(traffic.busiest("topics", 99))
        total = sum(made[-RECENT:])
        assert sum(sum(row["trend"]) for row in rows) == total
        assert [table.requests for table in traffic._recent["groups"].sums.values()] == ([total] if total else [])
        assert len(rows) <= 13
        for row in rows:
            seconds = len(row["trend"])
            assert row["requests"] == round(sum(row["trend"]) / seconds, 2)
            assert row["sent"] == round(2 * sum(row["trend"]) / seconds, 2)


def test_of_what_is_long_ago_only_totals_are_kept() -> None:
    traffic, clock, _ = watched()
    for number in range(KEPT):
        for name in range(5):
            traffic.observe(seen(topic=f"t{number} {name}", group=f"g{number} {name}"))
        clock.now += 1
    assert traffic.busiest("topics", 1)
    assert sum(len(second.topics) + len(second.groups) for second in traffic._seconds) == 2 * 5 * RECENT
    assert [len(table.sums) for table in traffic._recent.values()] == [5 * RECENT] * 2
    assert len(traffic.seconds(0)) == KEPT - 1


def test_nothing_is_watched_while_nobody_looks() -> None:
    clock: Clock = Clock()
    observers: list[Observer] = []
    traffic = Traffic(observers, clock)
    assert observers == []
    traffic.look()
    traffic.look()
    assert len(observers) == 1
    traffic.observe(seen())
    clock.now += LINGER
    traffic.tidy()
    assert traffic.watching
    clock.now += 1
    traffic.tidy()
    assert (traffic.watching, observers) == (False, [])
    traffic.tidy()
    traffic.look()
    assert traffic.seconds(0) == []

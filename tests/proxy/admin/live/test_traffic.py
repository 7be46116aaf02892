"""The sums of traffic for the live page."""

from random import Random

import pytest

from proxy.admin.live import last_minute
from proxy.admin.live.traffic import LINGER, MAX_SECONDS, ROW_SECONDS, Traffic
from proxy.admin.live.traffic_second import MAX_NAMES, OTHERS, Second, percentile
from proxy.core.events import Observer
from tests.proxy.operations.observations import observation


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.5

    def __call__(self) -> float:
        return self.now


def observed_traffic() -> tuple[Traffic, Clock, list[Observer]]:
    clock: Clock = Clock()
    observers: list[Observer] = []
    traffic = Traffic(observers, clock)
    traffic.keep_observing()
    return traffic, clock, observers


def test_second_sums_requests_by_protocol_topic_and_group() -> None:
    second = Second(7)
    for _ in range(3):
        second.add(observation(topic="orders", group="p", messages=2, bytes_in=10))
    second.add(observation("POP_MESSAGE", topic="orders", group="g", messages=5, bytes_out=50, seconds=9.0))
    second.add(observation(ok=False, topic="orders"))
    second.complete()
    assert second.protocols["remoting"].per_second() == {
        "requests": 5,
        "failed": 1,
        "sent": 6,
        "delivered": 5,
        "bytes_in": 30,
        "bytes_out": 50,
    }
    assert second.topics["orders"].requests == 5
    assert (second.groups["p"].sent, second.groups["g"].delivered) == (6, 5)
    # Long polls do not count: their latency depends on the client's timeout.
    p50, p99 = percentile(second.latencies, 0.5), percentile(second.latencies, 0.99)
    assert p50 is not None
    assert 2.0 <= p50 <= 2.5
    assert p99 == p50


@pytest.mark.parametrize("milliseconds", [0.01, 0.5, 3, 77, 1500, 100_000])
def test_percentiles_are_exact_to_25_percent(milliseconds: float) -> None:
    second = Second(0)
    second.add(observation(seconds=milliseconds / 1000))
    found = percentile(second.latencies, 0.99)
    assert found is not None
    assert milliseconds <= found <= max(milliseconds * 1.25, 0.1) + 0.001


def test_percentile_without_requests_is_none() -> None:
    assert percentile(Second(0).latencies, 0.5) is None


def test_topics_beyond_the_limit_share_one_name() -> None:
    second = Second(0)
    for number in range(MAX_NAMES + 50):
        second.add(observation(topic=f"t{number}"))
    second.complete()
    assert len(second.topics) == MAX_NAMES + 1
    assert second.topics[OTHERS].requests == 50


def test_only_complete_seconds_are_returned() -> None:
    traffic, clock, _ = observed_traffic()
    traffic.observe(observation())
    assert traffic.seconds(0) == []
    clock.now = 1_003.0
    found = traffic.seconds(0)
    assert [(second.at, second.protocols["remoting"].requests) for second in found] == [
        (1_000, 1),
        (1_001, 0),
        (1_002, 0),
    ]
    assert [second.at for second in traffic.seconds(1_001)] == [1_002]
    clock.now = 1_003.0 + 2 * MAX_SECONDS
    assert traffic.seconds(0) == []


def test_busiest_topics_come_first_with_their_trend() -> None:
    traffic, clock, _ = observed_traffic()
    for topic, count in (("Orders", 3), ("bills", 1), ("other", 2)):
        for _ in range(count):
            traffic.observe(observation(topic=topic, messages=1))
    clock.now += 1
    traffic.observe(observation(topic="bills", messages=4))
    clock.now += 1
    rows = traffic.busiest("topics", 2)
    assert [(name, sums["requests"], sums["sent"], trend) for name, sums, trend in rows] == [
        ("Orders", 1.5, 1.5, [3, 0]),
        ("bills", 1, 2.5, [1, 1]),
    ]
    assert [name for name, _, _ in traffic.busiest("topics", 9, "order")] == ["Orders"]
    assert traffic.codes() == {"SEND_MESSAGE_V2": 7}


def test_rows_are_the_sums_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of seconds, running sums equal sums computed from scratch."""
    monkeypatch.setattr(last_minute, "MAX_NAMES", 12)
    traffic, clock, _ = observed_traffic()
    random = Random(6)
    made: list[int] = []
    for _ in range(3 * ROW_SECONDS):
        count = random.randrange(6)
        made.append(count)
        for _ in range(count):
            # One name in every second, the others in a few.
            name = random.choice(("often", f"topic {random.randrange(40)}"))
            traffic.observe(observation(topic=name, group="g", messages=2, ok=random.random() < 0.9))
        clock.now += random.choice((1, 1, 1, 2))
        made += [0] * (int(clock.now) - 1_000 - len(made))
        rows = traffic.busiest("topics", 99)
        total = sum(made[-ROW_SECONDS:])
        assert sum(sum(trend) for _, _, trend in rows) == total
        assert [table.requests for table in traffic._name_sums["groups"].sums.values()] == ([total] if total else [])
        assert len(rows) <= 13
        for _, sums, trend in rows:
            assert sums["requests"] == round(sum(trend) / len(trend), 2)
            assert sums["sent"] == round(2 * sum(trend) / len(trend), 2)


def test_names_of_old_seconds_are_dropped() -> None:
    traffic, clock, _ = observed_traffic()
    for number in range(MAX_SECONDS):
        for name in range(5):
            traffic.observe(observation(topic=f"t{number} {name}", group=f"g{number} {name}"))
        clock.now += 1
    assert traffic.busiest("topics", 1)
    assert sum(len(second.topics) + len(second.groups) for second in traffic._seconds) == 2 * 5 * ROW_SECONDS
    assert [len(table.sums) for table in traffic._name_sums.values()] == [5 * ROW_SECONDS] * 2
    assert len(traffic.seconds(0)) == MAX_SECONDS - 1


def test_traffic_is_not_observed_after_the_page_is_closed() -> None:
    clock: Clock = Clock()
    observers: list[Observer] = []
    traffic = Traffic(observers, clock)
    assert observers == []
    traffic.keep_observing()
    traffic.keep_observing()
    assert len(observers) == 1
    traffic.observe(observation())
    clock.now += LINGER
    traffic.stop_if_idle()
    assert traffic.observing
    clock.now += 1
    traffic.stop_if_idle()
    assert (traffic.observing, observers) == (False, [])
    traffic.stop_if_idle()
    traffic.keep_observing()
    assert traffic.seconds(0) == []

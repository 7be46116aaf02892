"""The hour of traffic that is read from the request counts."""

from random import Random

import pytest

from proxy.observability.metrics.request_counts import RequestCounts
from proxy.observability.metrics.request_families import BOUNDS
from proxy.operations.history import counter_reader, name_sums
from proxy.operations.history.counter_reader import CounterReader
from proxy.operations.history.history import HOUR, MAX_SECONDS, NAME_STEP, ROW_SECONDS, STEP, History
from proxy.operations.history.second import OTHERS, percentile
from tests.proxy.operations.observations import observation


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.5

    def __call__(self) -> float:
        return self.now


class Stage:
    """A history with its counts and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counts = RequestCounts(clock=self.clock)
        self.history = History(self.counts, self.clock)

    def observe(self, times: int = 1, **fields: object) -> None:
        """Count requests."""
        for _ in range(times):
            self.counts.observe(observation(**fields))  # type: ignore[arg-type]

    def advance(self, seconds: int = 1) -> None:
        """Let time pass, and sample at the end."""
        self.clock.now += seconds
        self.history.sample()


def test_lookups_of_system_topics_are_no_traffic_of_the_topic() -> None:
    counts = RequestCounts()
    reader = CounterReader(counts)
    for topic in ("SELF_TEST_TOPIC", "orders"):
        counts.observe(observation("GET_ROUTEINFO_BY_TOPIC", topic=topic))
    counts.observe(observation(topic="RMQ_SYS_TRACE_TOPIC", messages=1))
    second = reader.read(7)
    assert sorted(second.topics) == ["RMQ_SYS_TRACE_TOPIC", "orders"]
    assert second.protocols["remoting"].requests == 3


def test_read_sums_requests_by_protocol_topic_and_group() -> None:
    counts = RequestCounts()
    reader = CounterReader(counts)
    for _ in range(3):
        counts.observe(observation(topic="orders", group="p", messages=2, bytes_in=10))
    counts.observe(observation("POP_MESSAGE", topic="orders", group="g", messages=5, bytes_out=50, seconds=9.0))
    counts.observe(observation(ok=False, topic="orders"))
    second = reader.read(7)
    assert second.protocols["remoting"].per_second() == {
        "requests": 5,
        "failed": 1,
        "sent": 6,
        "delivered": 5,
        "bytes_in": 30,
        "bytes_out": 50,
    }
    assert second.topics["orders"].requests == 5
    assert (list(second.groups), second.groups["g"].delivered) == (["g"], 5)
    # Long polls do not count: their latency depends on the client's timeout.
    assert sum(second.latencies.values()) == 4
    counts.observe(observation("POP_MESSAGE", topic="orders", group="g", messages=1))
    again = reader.read(8)
    assert (again.topics["orders"].requests, again.groups["g"].delivered) == (1, 1)
    assert reader.read(9).topics == {}


def test_requests_before_the_first_read_do_not_count() -> None:
    counts = RequestCounts()
    counts.observe(observation(topic="orders"))
    assert CounterReader(counts).read(1).topics == {}


def test_row_that_was_evicted_and_made_again_counts_from_zero() -> None:
    stage = Stage()
    reader = CounterReader(stage.counts)
    stage.observe(3, topic="orders")
    reader.read(1)
    stage.counts.evict_idle()
    stage.clock.now += 4_000
    stage.counts.evict_idle()
    stage.observe(2, topic="orders")
    assert reader.read(2).topics["orders"].requests == 2


@pytest.mark.parametrize("milliseconds", [0.3, 3, 77, 1500])
def test_percentiles_are_in_the_bucket_of_the_latency(milliseconds: float) -> None:
    counts = RequestCounts()
    reader = CounterReader(counts)
    counts.observe(observation(seconds=milliseconds / 1000))
    found = percentile(reader.read(1).latencies, 0.99)
    assert found is not None
    edges = (0.0, *(1000 * bound for bound in BOUNDS))
    low = max(edge for edge in edges if edge < milliseconds)
    high = min(edge for edge in edges if edge >= milliseconds)
    assert low < found <= high


def test_percentiles_without_requests_and_beyond_the_last_bound() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({len(BOUNDS): 1}, 0.5) == BOUNDS[-1] * 1000


def test_topics_beyond_the_limit_share_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_reader, "MAX_NAMES", 10)
    stage = Stage()
    reader = CounterReader(stage.counts)
    for number in range(15):
        stage.observe(topic=f"t{number}")
    topics = reader.read(0).topics
    assert len(topics) == 11
    assert topics[OTHERS].requests == 5


def test_seconds_without_traffic_are_kept_too() -> None:
    stage = Stage()
    stage.observe()
    assert stage.history.seconds(0) == []
    stage.advance()
    stage.advance(2)
    found = stage.history.seconds(0)
    assert [(second.at, second.protocols["remoting"].requests) for second in found] == [
        (1_000, 1),
        (1_001, 0),
        (1_002, 0),
    ]
    assert [second.at for second in stage.history.seconds(1_001)] == [1_002]


@pytest.mark.parametrize("jump", [-500, 2 * HOUR])
def test_history_begins_again_when_the_clock_is_set(jump: int) -> None:
    stage = Stage()
    stage.observe()
    stage.advance()
    stage.observe(2)
    stage.advance(jump)
    assert [second.protocols["remoting"].requests for second in stage.history.seconds(0)] == [2]


def test_busiest_topics_come_first_with_their_trend() -> None:
    stage = Stage()
    for topic, count in (("Orders", 3), ("bills", 1), ("other", 2)):
        stage.observe(count, topic=topic, messages=1)
    stage.advance()
    stage.observe(topic="bills", messages=4)
    stage.advance()
    rows = stage.history.busiest("topics", 2)
    assert [(name, sums["requests"], sums["sent"], trend) for name, sums, trend in rows] == [
        ("Orders", 1.5, 1.5, [3, 0]),
        ("bills", 1, 2.5, [1, 1]),
    ]
    assert [name for name, _, _ in stage.history.busiest("topics", 9, "order")] == ["Orders"]
    assert stage.history.codes() == {"SEND_MESSAGE_V2": 7}


def test_rows_are_the_sums_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of seconds, running sums equal sums computed from scratch."""
    monkeypatch.setattr(name_sums, "MAX_NAMES", 12)
    stage = Stage()
    random = Random(6)
    made: list[int] = []
    for _ in range(3 * ROW_SECONDS):
        count = random.randrange(6)
        for _ in range(count):
            # One name in every second, the others in a few.
            name = random.choice(("often", f"topic {random.randrange(40)}"))
            stage.observe(topic=name, messages=2, ok=random.random() < 0.9)
        elapsed = random.choice((1, 1, 1, 2))
        made += [0] * (elapsed - 1) + [count]
        stage.advance(elapsed)
        rows = stage.history.busiest("topics", 99)
        assert sum(sum(trend) for _, _, trend in rows) == sum(made[-ROW_SECONDS:])
        assert len(rows) <= 13
        for _, sums, trend in rows:
            assert sums["requests"] == round(sum(trend) / len(trend), 2)
            assert sums["sent"] == round(2 * sum(trend) / len(trend), 2)


def test_memory_is_bounded_and_names_of_old_seconds_are_dropped() -> None:
    stage = Stage()
    for number in range(HOUR + 600):
        stage.observe(topic=f"t{number % 700}")
        stage.advance()
    history = stage.history
    assert len(history.seconds(0)) == MAX_SECONDS
    assert len(history.steps()) == HOUR // STEP
    assert len(history.name_steps("topics", "t1")) == HOUR // NAME_STEP
    assert sum(len(second.topics) for second in history.seconds(0)) == ROW_SECONDS
    assert len(history._name_sums["topics"].sums) == ROW_SECONDS


def test_steps_hold_the_last_hour() -> None:
    stage = Stage()
    for _ in range(2 * NAME_STEP):
        stage.observe(2, topic="orders", messages=1)
        stage.advance()
    assert sum(step.protocols["remoting"].requests for step in stage.history.steps()) == 4 * NAME_STEP
    minutes = stage.history.name_steps("topics", "orders")
    assert [sums.sent for _, sums in minutes] == [40, 120, 80]
    assert [at % NAME_STEP for at, _ in minutes] == [0, 0, 0]
    assert [sums.sent for _, sums in stage.history.name_steps("topics", "other")] == [0, 0, 0]

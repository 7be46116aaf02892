"""Aggregation of snapshots into time series."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Merge, Samples, Snapshot
from proxy.observability.metrics.label_limiter import OTHER
from proxy.observability.metrics.series_aggregator import SeriesAggregator
from tests.proxy.fakes import Clock

TOPICS = Family("requests", Kind.COUNTER, "…", ("code", "topic"))
CAUSES = Family("closed", Kind.COUNTER, "…", ("cause",))
SECONDS = Family("seconds", Kind.HISTOGRAM, "…", bounds=(0.1, 1.0))


def snapshot(family: Family, samples: Samples) -> Snapshot:
    return [(family, samples)]


def series(aggregator: SeriesAggregator, family: Family) -> dict[Labels, object]:
    return dict(next(samples for each, samples in aggregator.series() if each == family))


def test_counters_of_processes_are_added() -> None:
    aggregator = SeriesAggregator(10, 100)
    aggregator.add_snapshot("one", snapshot(CAUSES, {("idle",): 3, ("peer",): 1}))
    aggregator.add_snapshot("two", snapshot(CAUSES, {("idle",): 4}))
    aggregator.add_snapshot("one", snapshot(CAUSES, {("idle",): 5, ("peer",): 1}))
    assert series(aggregator, CAUSES) == {("idle",): 9, ("peer",): 1}


def test_counts_of_a_removed_process_remain() -> None:
    aggregator = SeriesAggregator(10, 100)
    aggregator.add_snapshot("one", snapshot(CAUSES, {("idle",): 500}))
    aggregator.add_snapshot("two", snapshot(CAUSES, {("idle",): 500}))
    aggregator.remove_source("two")
    assert series(aggregator, CAUSES) == {("idle",): 1000}
    # Its successor starts at zero, and its first snapshot may have a higher count.
    aggregator.add_snapshot("two", snapshot(CAUSES, {("idle",): 700}))
    assert series(aggregator, CAUSES) == {("idle",): 1700}


def test_a_restarted_count_is_added_completely() -> None:
    aggregator = SeriesAggregator(10, 100)
    aggregator.add_snapshot("one", snapshot(TOPICS, {("send", "a"): 5, ("send", "b"): 1}))
    aggregator.add_snapshot("one", snapshot(TOPICS, {("send", "b"): 1}))
    aggregator.add_snapshot("one", snapshot(TOPICS, {("send", "a"): 7, ("send", "b"): 1}))
    assert series(aggregator, TOPICS) == {("send", "a"): 12, ("send", "b"): 1}


@pytest.mark.parametrize(("merge", "value"), [(Merge.SUM, 7.0), (Merge.MAX, 5.0), (Merge.MIN, 2.0)])
def test_gauges_are_merged_by_their_merge_mode(merge: Merge, value: float) -> None:
    gauge = Family("open", Kind.GAUGE, "…", merge=merge)
    aggregator = SeriesAggregator(10, 100)
    aggregator.add_snapshot("one", snapshot(gauge, {(): 9.0}))
    aggregator.add_snapshot("one", snapshot(gauge, {(): 2.0}))
    aggregator.add_snapshot("two", snapshot(gauge, {(): 5.0}))
    assert series(aggregator, gauge) == {(): value}
    aggregator.remove_source("two")
    assert series(aggregator, gauge) == {(): 2.0}


def test_histograms_are_added_by_bucket() -> None:
    aggregator = SeriesAggregator(10, 100)
    aggregator.add_snapshot("one", snapshot(SECONDS, {(): Distribution([1, 0, 0], 0.0625, {0: ("t1", 0.0625, 1.0)})}))
    aggregator.add_snapshot("two", snapshot(SECONDS, {(): Distribution([0, 2, 1], 4.0)}))
    aggregator.add_snapshot("one", snapshot(SECONDS, {(): Distribution([2, 0, 0], 0.125, {0: ("t2", 0.0625, 2.0)})}))
    assert series(aggregator, SECONDS) == {(): Distribution([2, 2, 1], 4.125, {0: ("t2", 0.0625, 2.0)})}


def test_topics_over_the_limit_share_a_series_and_no_count_moves() -> None:
    clock = Clock()
    aggregator = SeriesAggregator(1, 100, clock)
    aggregator.add_snapshot(
        "", snapshot(TOPICS, {("send", "a"): 10, ("send", "b"): 3, ("send", "c"): 4, ("send", ""): 1})
    )
    assert series(aggregator, TOPICS) == {("send", "a"): 10, ("send", OTHER): 7, ("send", ""): 1}
    clock.now += 1
    # b becomes the busiest: its former count remains under OTHER, and the increase of a is added there.
    aggregator.add_snapshot(
        "", snapshot(TOPICS, {("send", "a"): 11, ("send", "b"): 103, ("send", "c"): 4, ("send", ""): 1})
    )
    assert series(aggregator, TOPICS) == {("send", "b"): 100, ("send", OTHER): 8, ("send", ""): 1}


def test_an_idle_topics_series_is_dropped_and_its_count_is_not_moved() -> None:
    clock = Clock()
    aggregator = SeriesAggregator(5, 100, clock)
    aggregator.add_snapshot("", snapshot(TOPICS, {("send", "a"): 10, ("ack", "a"): 2, ("send", "b"): 3}))
    clock.now += 101
    aggregator.add_snapshot("", snapshot(TOPICS, {("send", "a"): 10, ("ack", "a"): 2, ("send", "b"): 4}))
    assert series(aggregator, TOPICS) == {("send", "b"): 4}
    aggregator.add_snapshot("", snapshot(TOPICS, {("send", "a"): 11, ("ack", "a"): 2, ("send", "b"): 4}))
    assert series(aggregator, TOPICS) == {("send", "a"): 1, ("ack", "a"): 0, ("send", "b"): 4}


def test_gauges_over_the_limit_are_added_under_other() -> None:
    groups = Family("members", Kind.GAUGE, "…", ("consumer_group",))
    aggregator = SeriesAggregator(1, 100)
    aggregator.add_snapshot("", snapshot(groups, {("a",): 1.0, ("b",): 9.0, ("c",): 2.0}))
    assert series(aggregator, groups) == {("b",): 9.0, (OTHER,): 3.0}


_COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20))


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), _COUNTS, st.booleans()), max_size=40))
def test_series_never_decrease_and_nothing_is_counted_twice(steps: list[tuple[str, dict[str, int], bool]]) -> None:
    """The sum of the series is the sum of all increases, for any sequence of snapshots and restarts."""
    clock = Clock()
    aggregator = SeriesAggregator(2, 1e9, clock)
    counts: dict[str, dict[str, int]] = {"one": {}, "two": {}}
    total = dropped = 0.0
    before: dict[Labels, object] = {}
    for source, increases, ends in steps:
        clock.now += 1
        if ends:
            aggregator.remove_source(source)
            counts[source] = {}
        for topic, count in increases.items():
            counts[source][topic] = counts[source].get(topic, 0) + count
            total += count
        aggregator.add_snapshot(
            source, snapshot(TOPICS, {("send", topic): count for topic, count in counts[source].items()})
        )
        now = series(aggregator, TOPICS)
        for key, value in before.items():
            if key in now:
                assert now[key] >= value  # type: ignore[operator]
            else:
                dropped += value  # type: ignore[operator]
        before = now
        assert sum(now.values()) + dropped == total  # type: ignore[arg-type]


def test_old_backlogs_and_traffic_take_no_series_of_each_other() -> None:
    clock = Clock()
    aggregator = SeriesAggregator(2, 3600, clock)
    backlog = Family("backlog", Kind.GAUGE, "…", ("topic",))
    age = Family("age", Kind.GAUGE, "…", ("topic",), Merge.MAX)
    for sent in range(10):
        clock.now += 15
        aggregator.add_snapshot(
            "",
            [
                (TOPICS, {("send", "busy"): sent, ("send", "busier"): 2 * sent}),
                (backlog, {("busy",): 0, ("old",): 5000, ("older",): 7000, ("least",): 1}),
                (age, {("busy",): 0, ("old",): 432_000, ("older",): 500_000, ("least",): 1}),
            ],
        )
    assert series(aggregator, TOPICS) == {("send", "busy"): 9, ("send", "busier"): 18}
    assert series(aggregator, backlog) == {("busy",): 0, ("old",): 5000, ("older",): 7000, (OTHER,): 1}

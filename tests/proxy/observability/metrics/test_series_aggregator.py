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


def of(family: Family, samples: Samples) -> Snapshot:
    return [(family, samples)]


def series(ledger: SeriesAggregator, family: Family) -> dict[Labels, object]:
    return dict(next(samples for known, samples in ledger.series() if known == family))


def test_processes_are_added_up() -> None:
    ledger = SeriesAggregator(10, 100)
    ledger.feed("one", of(CAUSES, {("idle",): 3, ("peer",): 1}))
    ledger.feed("two", of(CAUSES, {("idle",): 4}))
    ledger.feed("one", of(CAUSES, {("idle",): 5, ("peer",): 1}))
    assert series(ledger, CAUSES) == {("idle",): 9, ("peer",): 1}


def test_what_a_process_counted_outlives_it() -> None:
    ledger = SeriesAggregator(10, 100)
    ledger.feed("one", of(CAUSES, {("idle",): 500}))
    ledger.feed("two", of(CAUSES, {("idle",): 500}))
    ledger.forget("two")
    assert series(ledger, CAUSES) == {("idle",): 1000}
    # Its successor starts at nothing, and may have counted more already.
    ledger.feed("two", of(CAUSES, {("idle",): 700}))
    assert series(ledger, CAUSES) == {("idle",): 1700}


def test_a_count_that_was_dropped_and_began_anew_is_all_news() -> None:
    ledger = SeriesAggregator(10, 100)
    ledger.feed("one", of(TOPICS, {("send", "a"): 5, ("send", "b"): 1}))
    ledger.feed("one", of(TOPICS, {("send", "b"): 1}))
    ledger.feed("one", of(TOPICS, {("send", "a"): 7, ("send", "b"): 1}))
    assert series(ledger, TOPICS) == {("send", "a"): 12, ("send", "b"): 1}


@pytest.mark.parametrize(("merge", "value"), [(Merge.SUM, 7.0), (Merge.MAX, 5.0), (Merge.MIN, 2.0)])
def test_gauges_are_merged_as_they_say(merge: Merge, value: float) -> None:
    gauge = Family("open", Kind.GAUGE, "…", merge=merge)
    ledger = SeriesAggregator(10, 100)
    ledger.feed("one", of(gauge, {(): 9.0}))
    ledger.feed("one", of(gauge, {(): 2.0}))
    ledger.feed("two", of(gauge, {(): 5.0}))
    assert series(ledger, gauge) == {(): value}
    ledger.forget("two")
    assert series(ledger, gauge) == {(): 2.0}


def test_histograms_are_added_bucket_by_bucket() -> None:
    ledger = SeriesAggregator(10, 100)
    ledger.feed("one", of(SECONDS, {(): Distribution([1, 0, 0], 0.0625, {0: ("t1", 0.0625, 1.0)})}))
    ledger.feed("two", of(SECONDS, {(): Distribution([0, 2, 1], 4.0)}))
    ledger.feed("one", of(SECONDS, {(): Distribution([2, 0, 0], 0.125, {0: ("t2", 0.0625, 2.0)})}))
    assert series(ledger, SECONDS) == {(): Distribution([2, 2, 1], 4.125, {0: ("t2", 0.0625, 2.0)})}


def test_topics_beyond_the_busiest_share_a_series_and_no_count_moves() -> None:
    clock = Clock()
    ledger = SeriesAggregator(1, 100, clock)
    ledger.feed("", of(TOPICS, {("send", "a"): 10, ("send", "b"): 3, ("send", "c"): 4, ("send", ""): 1}))
    assert series(ledger, TOPICS) == {("send", "a"): 10, ("send", OTHER): 7, ("send", ""): 1}
    clock.now += 1
    # b becomes the busiest: what it counted before stays where it is, and what a counts from now on is another's.
    ledger.feed("", of(TOPICS, {("send", "a"): 11, ("send", "b"): 103, ("send", "c"): 4, ("send", ""): 1}))
    assert series(ledger, TOPICS) == {("send", "b"): 100, ("send", OTHER): 8, ("send", ""): 1}


def test_a_silent_topics_series_is_dropped_and_the_others_do_not_get_its_count() -> None:
    clock = Clock()
    ledger = SeriesAggregator(5, 100, clock)
    ledger.feed("", of(TOPICS, {("send", "a"): 10, ("ack", "a"): 2, ("send", "b"): 3}))
    clock.now += 101
    ledger.feed("", of(TOPICS, {("send", "a"): 10, ("ack", "a"): 2, ("send", "b"): 4}))
    assert series(ledger, TOPICS) == {("send", "b"): 4}
    ledger.feed("", of(TOPICS, {("send", "a"): 11, ("ack", "a"): 2, ("send", "b"): 4}))
    assert series(ledger, TOPICS) == {("send", "a"): 1, ("ack", "a"): 0, ("send", "b"): 4}


def test_gauges_of_topics_that_are_not_shown_are_added_up() -> None:
    groups = Family("members", Kind.GAUGE, "…", ("consumer_group",))
    ledger = SeriesAggregator(1, 100)
    ledger.feed("", of(groups, {("a",): 1.0, ("b",): 9.0, ("c",): 2.0}))
    assert series(ledger, groups) == {("b",): 9.0, (OTHER,): 3.0}


_COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20))


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), _COUNTS, st.booleans()), max_size=40))
def test_series_never_fall_and_nothing_is_counted_twice(steps: list[tuple[str, dict[str, int], bool]]) -> None:
    """Whatever processes count, end and begin again: the sum of all deltas is shown, each series only grows."""
    clock = Clock()
    ledger = SeriesAggregator(2, 1e9, clock)
    counts: dict[str, dict[str, int]] = {"one": {}, "two": {}}
    total = dropped = 0.0
    before: dict[Labels, object] = {}
    for source, more, ends in steps:
        clock.now += 1
        if ends:
            ledger.forget(source)
            counts[source] = {}
        for topic, count in more.items():
            counts[source][topic] = counts[source].get(topic, 0) + count
            total += count
        ledger.feed(source, of(TOPICS, {("send", topic): count for topic, count in counts[source].items()}))
        now = series(ledger, TOPICS)
        for key, value in before.items():
            if key in now:
                assert now[key] >= value  # type: ignore[operator]
            else:
                dropped += value  # type: ignore[operator]
        before = now
        assert sum(now.values()) + dropped == total  # type: ignore[arg-type]

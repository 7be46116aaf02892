"""Which span and which scope explain bad events best."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import goes_on
from analytics.incidents.detectors.consumers import _ratio, _surplus
from analytics.incidents.exposure import Exposure
from analytics.incidents.scan import scan
from analytics.incidents.spans import Limits
from analytics.incidents.statistics import best_intervals
from analytics.incidents.tables import SEPARATOR, main_span

_PERIODS = 240
_DIMENSIONS = ("topic", "replica", "topic+broker")


def _scan(share: Mapping[tuple[str, str], np.ndarray], requests: float = 20.0, rare: str = "") -> list[Cluster]:
    """Scan topics at two replicas and one broker. share: of bad requests, by topic and replica; rare: topics with a
    tenth of the requests.
    """
    events, totals = [], []
    span = np.arange(_PERIODS)
    for (topic, replica), bad in share.items():
        names = {"topic": topic, "replica": replica, "topic+broker": topic + SEPARATOR + "b"}
        count = requests / 10 if topic in rare else requests
        totals += [pd.DataFrame({"t": span, "dimension": name, "value": names[name], "n": count}) for name in names]
        rows = pd.DataFrame({"t": span, "n": np.round(bad * count), "topic": topic, "replica": replica})
        events.append(rows[rows["n"] > 0].assign(broker="b", client="c"))
    whole = pd.concat(events, ignore_index=True)
    sums = pd.concat(totals).groupby(["t", "dimension", "value"])["n"].sum()
    over = Exposure.of(sums.reset_index(), "n", _DIMENSIONS, 0, _PERIODS)
    return scan(whole.assign(rows_=whole["n"]), over, Limits(floor=2e-3))


def _during(start: int, end: int, share: float) -> np.ndarray:
    places = np.arange(_PERIODS)
    return np.where((places >= start) & (places < end), share, 0.0)


def test_topics_that_fail_at_one_replica_are_not_the_replicas_fault() -> None:
    """A topic fails for long, of which one replica has most; the replica itself fails for a while meanwhile."""
    shares = {(topic, "edge-1"): _during(100, 110, 0.2) for topic in ("b", "c", "d", "e")}
    shares |= {("a", "edge-1"): _during(60, 180, 0.9), ("a", "edge-0"): _during(60, 180, 0.9)}
    shares |= {(topic, "edge-0"): _during(0, 0, 0.0) for topic in ("b", "c", "d", "e")}
    found = {tuple(cluster.scope.items()): (cluster.start, cluster.end) for cluster in _scan(shares)}
    assert found == {(("topic", "a"),): (60, 180), (("replica", "edge-1"),): (100, 110)}


def test_all_topics_of_a_replica_are_the_replicas_fault() -> None:
    shares = {(topic, "edge-1"): _during(100, 130, 0.3) for topic in ("a", "b", "c")}
    shares |= {(topic, "edge-0"): _during(0, 0, 0.0) for topic in ("a", "b", "c")}
    (cluster,) = _scan(shares)
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({"replica": "edge-1"}, 100, 130)


def test_a_replica_that_is_bad_from_the_first_record_to_the_last_is_found() -> None:
    shares = {(topic, "edge-1"): _during(0, _PERIODS, 0.3) for topic in ("a", "b", "c")}
    shares |= {(topic, "edge-0"): _during(0, 0, 0.0) for topic in ("a", "b", "c")}
    (cluster,) = _scan(shares)
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({"replica": "edge-1"}, 0, _PERIODS)


def test_trouble_of_all_replicas_and_topics_is_one_of_the_whole() -> None:
    shares = {(topic, replica): _during(100, 130, 0.3) for topic in "abc" for replica in ("edge-0", "edge-1")}
    (cluster,) = _scan(shares)
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({}, 100, 130)


def test_an_operation_that_fails_everywhere_is_one_trouble_of_the_whole_although_many_topics_rarely_use_it() -> None:
    """Another topic with many requests uses it less than the others."""
    replicas = ("edge-0", "edge-1")
    shares = {(topic, replica): _during(100, 130, 0.4) for topic in "abc" for replica in replicas}
    shares |= {("d", replica): _during(100, 130, 0.1) for replica in replicas}
    shares |= {(topic, replica): _during(0, 0, 0.0) for topic in "efghi" for replica in replicas}
    (cluster,) = _scan(shares, rare="efghi")
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({}, 100, 130)


def test_trouble_of_a_topic_is_no_part_of_a_later_one_of_the_whole() -> None:
    replicas = ("edge-0", "edge-1")
    shares = {("a", replica): _during(90, 106, 0.9) for replica in replicas}
    shares |= {(topic, replica): _during(112, 120, 0.9) for topic in "bcdef" for replica in replicas}
    found = {tuple(cluster.scope.items()): (cluster.start, cluster.end) for cluster in _scan(shares)}
    assert found == {(("topic", "a"),): (90, 106), (): (112, 120)}


def test_trouble_of_two_of_three_replicas_is_theirs() -> None:
    shares = {(topic, f"edge-{number}"): _during(100, 130, 0.3) for topic in "abc" for number in range(2)}
    shares |= {(topic, "edge-2"): _during(0, 0, 0.0) for topic in "abc"}
    scopes = [dict(cluster.scope) for cluster in _scan(shares)]
    assert sorted(scope["replica"] for scope in scopes) == ["edge-0", "edge-1"]


def test_a_broker_that_is_slow_is_one_cluster_although_one_topic_has_most_of_its_requests() -> None:
    span, bad = np.arange(_PERIODS), _during(150, _PERIODS, 0.3)
    totals, events = [], []
    for topic, size in (("busy", 2000.0), ("a", 20.0), ("b", 20.0), ("c", 20.0)):
        for broker, share in (("slow", bad), ("fine", 0.0 * bad)):
            names = {"topic": topic, "broker": broker, "topic+broker": topic + SEPARATOR + broker}
            totals += [pd.DataFrame({"t": span, "dimension": name, "value": names[name], "n": size}) for name in names]
            rows = pd.DataFrame({"t": span, "n": np.round(share * size), "topic": topic, "broker": broker})
            events.append(rows[rows["n"] > 0].assign(client="c"))
    sums = pd.concat(totals).groupby(["t", "dimension", "value"])["n"].sum().reset_index()
    over = Exposure.of(sums, "n", ("topic", "broker", "topic+broker"), 0, _PERIODS)
    whole = pd.concat(events, ignore_index=True)
    (cluster,) = scan(whole.assign(rows_=whole["n"]), over, Limits(floor=2e-3))
    assert (dict(cluster.scope), cluster.start) == ({"broker": "slow"}, 150)
    assert over.counts["broker"].sum() == sums.loc[sums["dimension"] == "broker", "n"].sum()


@pytest.mark.parametrize(
    ("end", "share", "open_"), [(_PERIODS, 0.2, True), (230, 0.01, True), (230, 0.2, False), (150, 0.01, False)]
)
def test_rare_failures_go_on_after_a_short_pause(end: int, share: float, open_: bool) -> None:
    bad = np.zeros(_PERIODS)
    total = np.full(_PERIODS, 20.0)
    seen = share * total[100:end].sum()
    cluster = Cluster({}, 100, end, seen, total[100:end].sum(), 0.1, 30.0, pd.DataFrame(), 80, bad, total)
    assert goes_on(cluster, _PERIODS) == open_


def test_two_incidents_of_a_day_are_not_one() -> None:
    bad = _during(40, 46, 0.9) + _during(150, 160, 0.9)
    found = sorted((cluster.start, cluster.end) for cluster in _scan({("a", "edge-0"): bad}))
    assert found == [(40, 46), (150, 160)]


def test_troubles_of_a_topic_hours_apart_are_two_although_the_usual_share_is_tiny() -> None:
    bad = _during(20, 80, 0.2) + _during(160, 190, 0.4)
    found = sorted((cluster.start, cluster.end) for cluster in _scan({("a", "edge-0"): bad}, requests=400.0))
    assert found == [(20, 80), (160, 190)]


def test_a_trouble_of_the_whole_is_one_although_a_topic_fails_more_on_its_own_account() -> None:
    shares = {(topic, replica): _during(60, 120, 0.05) for topic in "abc" for replica in ("edge-0", "edge-1")}
    shares["a", "edge-0"] = shares["a", "edge-1"] = _during(60, 122, 0.9)
    found = {tuple(cluster.scope.items()) for cluster in _scan(shares)}
    assert found == {(), (("topic", "a"),)}


def test_a_stray_event_in_a_quiet_hour_does_not_belong_to_the_incident() -> None:
    bad = _during(40, 41, 0.05) + _during(100, 160, 0.5)
    (cluster,) = _scan({("a", "edge-0"): bad})
    assert (cluster.start, cluster.end) == (100, 160)


@pytest.mark.parametrize(("brokers", "scope"), [(("a", "b"), {"topic": "t"}), (("a",), {"topic": "t", "broker": "a"})])
def test_failures_at_several_brokers_of_a_topic_are_the_topics(
    brokers: tuple[str, ...], scope: Mapping[str, str]
) -> None:
    """Polls name no broker, so that a broker's part of a topic has fewer requests for the same failures."""
    span = np.arange(_PERIODS)
    totals = [pd.DataFrame({"t": span, "dimension": "topic", "value": "t", "n": 60.0})]
    events = []
    for broker, bad in zip("abc", (4.0, 2.0, 0.0), strict=True):
        value = "t" + SEPARATOR + broker
        totals.append(pd.DataFrame({"t": span, "dimension": "topic+broker", "value": value, "n": 6.0}))
        failed = pd.DataFrame({"t": np.arange(100, 130), "n": bad, "topic": "t", "broker": broker, "client": "c"})
        events.append(failed[failed["broker"].isin(brokers) & (failed["n"] > 0)])
    whole = pd.concat(events, ignore_index=True)
    over = Exposure.of(pd.concat(totals), "n", ("topic", "topic+broker"), 0, _PERIODS)
    (cluster,) = scan(whole.assign(rows_=whole["n"]), over, Limits(floor=2e-3))
    assert (dict(cluster.scope), cluster.bad) == (scope, whole["n"].sum())


def test_a_version_that_is_bad_from_its_first_request_on_has_no_usual_share() -> None:
    span, old, new = np.arange(_PERIODS), "grpc JAVA 5", "grpc JAVA 6"
    after = span[span >= 150]
    totals = [
        pd.DataFrame({"t": span, "dimension": "sdk", "value": old, "n": 40.0}),
        pd.DataFrame({"t": after, "dimension": "sdk", "value": new, "n": 10.0}),
        pd.DataFrame({"t": span, "dimension": "topic", "value": "t", "n": np.where(span < 150, 40.0, 50.0)}),
    ]
    bad = pd.DataFrame({"t": after, "n": 4.0, "rows_": 4.0, "topic": "t", "sdk": new, "client": "c"})
    over = Exposure.of(pd.concat(totals), "n", ("sdk", "topic"), 0, _PERIODS)
    (cluster,) = scan(bad, over, Limits(factor=4.0, events=12, share=0.04, ratio=3.0, likelihood=25.0, floor=1e-2))
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({"sdk": new}, 150, _PERIODS)


def _kadane(values: np.ndarray) -> tuple[int, int, float]:
    best, start, begin, end, running = -np.inf, 0, 0, 0, 0.0
    for place, value in enumerate(values):
        if running <= 0:
            begin, running = place, 0.0
        running += value
        if running > best:
            best, start, end = running, begin, place + 1
    return start, end, best


@pytest.mark.parametrize("seed", range(5))
def test_best_intervals_equal_kadanes(seed: int) -> None:
    values = np.random.default_rng(seed).integers(-4, 4, (20, 60)).astype(float)
    found = [tuple(float(each) for each in row) for row in zip(*best_intervals(values), strict=True)]
    assert found == [_kadane(row) for row in values]


def test_the_error_of_a_usual_share_is_no_backlog() -> None:
    """A group that always takes a little less than expected consumes ten hours again."""
    taken = np.full(400, 95.0)
    taken[300:320] = 600.0
    surplus, _ = (each[0] for each in _surplus(np.full((1, 400), 100.0), taken[None, :]))
    assert surplus[300:320].sum() > 0.9 * 20 * 500


def test_a_group_that_catches_up_does_not_rewind() -> None:
    taken = np.full(400, 100.0)
    taken[200:250], taken[250:300] = 0.0, 200.0
    surplus, backlog = (each[0] for each in _surplus(np.full((1, 400), 100.0), taken[None, :]))
    assert surplus.sum() < 0.1 * 5000
    assert backlog[249] > 0.9 * 5000


@pytest.mark.parametrize("start", [180, 120, 72, 48])
def test_a_change_that_lasts_for_most_of_the_records_is_found(start: int) -> None:
    """It makes up most of the mean."""
    shares = {(topic, "edge-0"): _during(0, _PERIODS, 0.05) for topic in ("a", "b", "c")}
    shares["a", "edge-0"] = np.maximum(_during(start, _PERIODS, 0.6), 0.05)
    (cluster,) = _scan(shares)
    assert (dict(cluster.scope), cluster.start, cluster.end) == ({"topic": "a"}, start, _PERIODS)


def test_a_share_that_never_changes_is_none() -> None:
    generator = np.random.default_rng(1)
    shares = {(topic, "edge-0"): generator.binomial(20, 0.3, _PERIODS) / 20 for topic in ("a", "b", "c")}
    assert _scan(shares) == []


def _of_hours(hours: Mapping[int, int]) -> pd.DataFrame:
    return pd.DataFrame({"hour": list(hours), "n": list(hours.values())})


@pytest.mark.parametrize(
    ("hours", "span"),
    [
        ({100: 50, 101: 60}, (100, 102)),
        ({100: 5000, 101: 6000, 800: 3}, (100, 102)),
        ({0: 1, 5000: 9000, 5001: 9000, 9000: 2}, (5000, 5002)),
        # A pause of two days, and a part with few requests that is none of a wrong clock.
        ({100: 5000, 148: 6000}, (100, 149)),
        ({100: 50, 148: 2}, (100, 149)),
        # Within a day nothing is left out.
        ({100: 9000, 124: 1}, (100, 125)),
        ({}, (0, 2**31)),
    ],
)
def test_a_few_requests_of_a_wrong_clock_do_not_make_the_span(hours: Mapping[int, int], span: tuple[int, int]) -> None:
    assert main_span(_of_hours(hours)) == span


@pytest.mark.parametrize(
    ("hours", "taken", "share"),
    [
        (24, [1.0] * 24, 1.0),
        # Stopped for most of the time, and from the middle of a few hours on.
        (24, [0.5] * 7 + [0.0] * 17, 0.5),
        (24, [1.0] * 5 + [0.0] * 14 + [1.0] * 5, 1.0),
        (2, [1.0, 0.0], 1.0),
        # Once a day.
        (72, ([24.0] + [0.0] * 23) * 3, 0.0),
    ],
)
def test_the_usual_share_of_a_group_is_that_of_the_time_in_which_it_takes(
    hours: int, taken: list[float], share: float
) -> None:
    due = np.full(hours * 12, 10.0)
    assert _ratio(due, np.repeat(taken, 12) * due) == pytest.approx(share)

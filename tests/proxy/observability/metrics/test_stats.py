import math

import orjson
import pytest

from proxy.observability.metrics import Metrics
from proxy.observability.metrics.envoy import STATS
from proxy.observability.metrics.stats import BadQuery, Query
from tests.proxy.observability.metrics.kit import observation


@pytest.fixture
def metrics() -> Metrics:
    """Three requests: 4, 4 and 40 ms, of which the last one came in another interval than the others."""
    metrics = Metrics()
    metrics.envoy.flush()
    for seconds in (0.004, 0.004):
        metrics.observe(observation(seconds=seconds))
    metrics.envoy.flush()
    metrics.observe(observation("HEART_BEAT", topic=None, seconds=0.04))
    return metrics


def asked(metrics: Metrics, **query: str) -> str:
    return metrics.stats(Query.parse(query))[1].decode()


def test_the_text_has_every_statistic_sorted_and_histograms_last(metrics: Metrics) -> None:
    lines = asked(metrics).splitlines()
    names = [line.partition(": ")[0].removeprefix("rocketmq.gantry.") for line in lines]
    assert names == [*sorted(stat.name for stat in STATS), "request_time_ms"]
    assert "rocketmq.gantry.send_message_v2: 2" in lines
    assert lines[-1] == (
        "rocketmq.gantry.request_time_ms: P0(2.5,2.5) P25(3.125,3.4375) P50(3.75,4.375) P75(4.375,31.25) "
        "P90(4.75,42.5) P95(4.875,46.25) P99(4.975,49.25) P99.5(4.9875,49.625) P99.9(4.9975,49.925) P100(5,50)"
    )


def test_before_anything_came_there_are_no_values() -> None:
    metrics = Metrics()
    assert asked(metrics).endswith("rocketmq.gantry.request_time_ms: No recorded values\n")
    assert asked(metrics, usedonly="") == ""
    metrics.observe(observation())
    assert "P0(nan,2.5)" in asked(metrics)


def test_only_what_was_used(metrics: Metrics) -> None:
    names = [
        line.partition(": ")[0].removeprefix("rocketmq.gantry.") for line in asked(metrics, usedonly="").split("\n")
    ]
    assert "send_message_v2" in names
    # It was written, though it is 0 again.
    assert "send_message_v2_active" in names
    assert "pop_message" not in names


def test_a_filter_is_found_anywhere(metrics: Metrics) -> None:
    assert (
        asked(metrics, filter="_v[12]$") == "rocketmq.gantry.send_message_v1: 0\nrocketmq.gantry.send_message_v2: 2\n"
    )
    assert asked(metrics, filter="^send") == ""


def test_no_filter_takes_long(metrics: Metrics) -> None:
    """Backtracking would take longer than the universe has."""
    assert asked(metrics, filter="(.*)*(.*)*(.*)*(.*)*!") == ""
    with pytest.raises(BadQuery, match="Invalid re2 regex"):
        Query.parse({"filter": "a" * 1001})


@pytest.mark.parametrize(
    ("kind", "count"), [("All", 27), ("Counters", 17), ("Gauges", 9), ("Histograms", 1), ("TextReadouts", 0)]
)
def test_by_type(metrics: Metrics, kind: str, count: int) -> None:
    assert len(asked(metrics, type=kind).splitlines()) == count


def test_json(metrics: Metrics) -> None:
    kind, body = metrics.stats(Query.parse({"format": "json", "filter": "heartbeat|time"}))
    assert kind == "application/json"
    first, second = orjson.loads(body)["stats"]
    assert first == {"name": "rocketmq.gantry.heartbeat", "value": 1}
    histograms = second["histograms"]
    assert histograms["supported_quantiles"] == [0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100]
    (computed,) = histograms["computed_quantiles"]
    assert computed["name"] == "rocketmq.gantry.request_time_ms"
    assert computed["values"][2] == {"cumulative": 4.375, "interval": 3.75}
    assert asked(metrics, format="json", filter="nothing") == '{"stats":[]}'


def test_json_has_null_for_no_number() -> None:
    metrics = Metrics()
    metrics.observe(observation())
    (found,) = orjson.loads(asked(metrics, format="json", type="Histograms"))["stats"]
    values = found["histograms"]["computed_quantiles"][0]["values"]
    assert {value["interval"] for value in values} == {None}
    assert not any(math.isnan(value["cumulative"]) for value in values)


@pytest.mark.parametrize(("buckets", "counts"), [("cumulative", (2, 2, 3)), ("disjoint", (2, 0, 1))])
def test_buckets(metrics: Metrics, buckets: str, counts: tuple[int, int, int]) -> None:
    (found,) = orjson.loads(asked(metrics, format="json", type="Histograms", histogram_buckets=buckets))["stats"]
    (histogram,) = found["histograms"]
    by_bound = {one["upper_bound"]: (one["interval"], one["cumulative"]) for one in histogram["buckets"]}
    assert tuple(by_bound[bound][1] for bound in (5.0, 25.0, 50.0)) == counts
    assert by_bound[5.0] == (2, 2)
    text = asked(metrics, type="Histograms", histogram_buckets=buckets)
    assert f" B5(2,2) B10({counts[1]},{counts[1]}) " in text


def test_as_prometheus(metrics: Metrics) -> None:
    kind, body = metrics.stats(Query.parse({"format": "prometheus"}))
    assert kind.startswith("text/plain; version=0.0.4")
    assert b"gantry_envoy_send_message_v2_total 2.0" in body

"""Envoy's `/stats`."""

import math

import orjson
import pytest

from proxy.observability.metrics import Metrics
from proxy.observability.metrics.envoy import STATS
from proxy.observability.metrics.stats import BadQuery, Query
from tests.proxy.observability.metrics.samples import observation


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of three requests: 4, 4 and 40 ms; the last one after the others' interval."""
    metrics = Metrics()
    metrics.envoy.flush()
    for seconds in (0.004, 0.004):
        metrics.observe(observation(seconds=seconds))
    metrics.envoy.flush()
    metrics.observe(observation("HEART_BEAT", topic=None, seconds=0.04))
    return metrics


def stats(metrics: Metrics, **query: str) -> str:
    return metrics.stats(Query.parse(query))[1].decode()


def test_the_text_has_every_statistic_sorted_and_histograms_last(metrics: Metrics) -> None:
    lines = stats(metrics).splitlines()
    names = [line.partition(": ")[0].removeprefix("rocketmq.gantry.") for line in lines]
    assert names == [*sorted(stat.name for stat in STATS), "request_time_ms"]
    assert "rocketmq.gantry.send_message_v2: 2" in lines
    assert lines[-1] == (
        "rocketmq.gantry.request_time_ms: P0(2.5,2.5) P25(3.125,3.4375) P50(3.75,4.375) P75(4.375,31.25) "
        "P90(4.75,42.5) P95(4.875,46.25) P99(4.975,49.25) P99.5(4.9875,49.625) P99.9(4.9975,49.925) P100(5,50)"
    )


def test_without_requests_there_are_no_values() -> None:
    metrics = Metrics()
    assert stats(metrics).endswith("rocketmq.gantry.request_time_ms: No recorded values\n")
    assert stats(metrics, usedonly="") == ""
    metrics.observe(observation())
    assert "P0(nan,2.5)" in stats(metrics)


def test_usedonly_selects_statistics_that_were_written(metrics: Metrics) -> None:
    names = [
        line.partition(": ")[0].removeprefix("rocketmq.gantry.") for line in stats(metrics, usedonly="").split("\n")
    ]
    assert "send_message_v2" in names
    # 0 again, but it was written.
    assert "send_message_v2_active" in names
    assert "pop_message" not in names


def test_a_filter_matches_anywhere_in_the_name(metrics: Metrics) -> None:
    assert (
        stats(metrics, filter="_v[12]$") == "rocketmq.gantry.send_message_v1: 0\nrocketmq.gantry.send_message_v2: 2\n"
    )
    assert stats(metrics, filter="^send") == ""


def test_filters_take_linear_time(metrics: Metrics) -> None:
    """A backtracking engine would not finish."""
    assert stats(metrics, filter="(.*)*(.*)*(.*)*(.*)*!") == ""
    with pytest.raises(BadQuery, match="Invalid re2 regex"):
        Query.parse({"filter": "a" * 1001})


@pytest.mark.parametrize(
    ("kind", "count"), [("All", 27), ("Counters", 17), ("Gauges", 9), ("Histograms", 1), ("TextReadouts", 0)]
)
def test_type_selects_statistics(metrics: Metrics, kind: str, count: int) -> None:
    assert len(stats(metrics, type=kind).splitlines()) == count


def test_json_has_numbers_and_quantiles(metrics: Metrics) -> None:
    kind, body = metrics.stats(Query.parse({"format": "json", "filter": "heartbeat|time"}))
    assert kind == "application/json"
    first, second = orjson.loads(body)["stats"]
    assert first == {"name": "rocketmq.gantry.heartbeat", "value": 1}
    histograms = second["histograms"]
    assert histograms["supported_quantiles"] == [0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100]
    (computed,) = histograms["computed_quantiles"]
    assert computed["name"] == "rocketmq.gantry.request_time_ms"
    assert computed["values"][2] == {"cumulative": 4.375, "interval": 3.75}
    assert stats(metrics, format="json", filter="nothing") == '{"stats":[]}'


def test_json_has_null_for_nan() -> None:
    metrics = Metrics()
    metrics.observe(observation())
    (element,) = orjson.loads(stats(metrics, format="json", type="Histograms"))["stats"]
    values = element["histograms"]["computed_quantiles"][0]["values"]
    assert {value["interval"] for value in values} == {None}
    assert not any(math.isnan(value["cumulative"]) for value in values)


@pytest.mark.parametrize(("buckets", "counts"), [("cumulative", (2, 2, 3)), ("disjoint", (2, 0, 1))])
def test_histogram_buckets_are_cumulative_or_disjoint(
    metrics: Metrics, buckets: str, counts: tuple[int, int, int]
) -> None:
    (element,) = orjson.loads(stats(metrics, format="json", type="Histograms", histogram_buckets=buckets))["stats"]
    (histogram,) = element["histograms"]
    by_bound = {bucket["upper_bound"]: (bucket["interval"], bucket["cumulative"]) for bucket in histogram["buckets"]}
    assert tuple(by_bound[bound][1] for bound in (5.0, 25.0, 50.0)) == counts
    assert by_bound[5.0] == (2, 2)
    text = stats(metrics, type="Histograms", histogram_buckets=buckets)
    assert f" B5(2,2) B10({counts[1]},{counts[1]}) " in text


def test_the_prometheus_format_has_the_families(metrics: Metrics) -> None:
    kind, body = metrics.stats(Query.parse({"format": "prometheus"}))
    assert kind.startswith("text/plain; version=0.0.4")
    assert b"gantry_envoy_send_message_v2_total 2.0" in body

"""Collection and exposition of the metrics of one process."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import anyio.to_thread
import pytest
from prometheus_client.openmetrics import parser as open_metrics

from proxy.observability.metrics import Metrics, serve
from proxy.observability.metrics.family import Family, Kind, Merge, Samples, by_label
from proxy.settings.metrics import MetricsSettings
from tests.ports import free_port
from tests.proxy.observability.metrics.samples import observation, samples_of, text


def test_requests_are_exposed_with_their_labels() -> None:
    metrics = Metrics()
    metrics.observe(observation())
    metrics.observe(observation(response=2))
    assert samples_of(metrics, "gantry_requests_total") == {
        ("SEND_MESSAGE_V2", "remoting", "0", "orders"): 1,
        ("SEND_MESSAGE_V2", "remoting", "2", "orders"): 1,
    }


def test_added_gauges_and_counters_are_read_at_collection() -> None:
    metrics = Metrics()
    diverted: Counter[str] = Counter()
    clients = ["a"]

    def read() -> Iterator[tuple[Family, Samples]]:
        yield Family("gantry_diverted", Kind.COUNTER, "Diverted.", ("reason",)), by_label(diverted)
        yield Family("gantry_some", Kind.GAUGE, "Clients.", (), Merge.MAX), {(): len(clients)}

    metrics.add(read)
    assert (samples_of(metrics, "gantry_some"), samples_of(metrics, "gantry_diverted_total")) == ({(): 1}, {})
    diverted["slave"] += 2
    clients.append("b")
    metrics.group_changes.counts["joined"] += 4
    assert (samples_of(metrics, "gantry_some"), samples_of(metrics, "gantry_diverted_total")) == (
        {(): 2},
        {("slave",): 2},
    )
    assert samples_of(metrics, "gantry_group_changes_total") == {("joined",): 4, ("left",): 0}


def test_rip_46s_metrics_have_its_constant_labels() -> None:
    metrics = Metrics(MetricsSettings(cluster="east"), "host-1", "local")
    metrics.observe(observation(messages=1, bytes_in=10))
    assert 'rocketmq_proxy_up{cluster="east",node_id="host-1",node_type="proxy",proxy_mode="local"} 1.0' in text(
        metrics
    )
    labels = 'cluster="east",is_system="false",node_id="host-1",node_type="proxy",topic="orders"'
    assert f"rocketmq_messages_in_total{{{labels}}} 1.0" in text(metrics)


def test_label_values_that_utf_8_cannot_encode_are_replaced() -> None:
    metrics = Metrics()
    metrics.observe(observation(topic='a"b\\c\n\ud800'))
    assert [key[3] for key in samples_of(metrics, "gantry_requests_total")] == ['a"b\\c\n?']


def test_at_most_top_topics_have_series() -> None:
    metrics = Metrics(MetricsSettings(top=1))
    for topic in ("a", "b", "b"):
        metrics.observe(observation(topic=topic))
    assert {key[3] for key in samples_of(metrics, "gantry_requests_total")} == {"b", "__other__"}


@pytest.mark.anyio
async def test_metrics_are_served_until_stopped() -> None:
    metrics, port = Metrics(), free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with metrics.running():
        stop = serve(metrics, f"127.0.0.1:{port}")
        try:
            metrics.observe(observation(trace_id="0af7651916cd43dd8448eb211c80319c"))
            plain = await anyio.to_thread.run_sync(fetcher(url))
            assert 'gantry_requests_total{code="SEND_MESSAGE_V2"' in plain
            exemplars = await anyio.to_thread.run_sync(fetcher(url, "application/openmetrics-text; version=1.0.0"))
            with pytest.raises(OSError, match="in use"):
                serve(metrics, f"127.0.0.1:{port}")
        finally:
            await anyio.to_thread.run_sync(stop)
    parse: Any = open_metrics.text_string_to_metric_families
    samples = [sample for family in parse(exemplars) for sample in family.samples if sample.exemplar]
    (sample,) = samples
    assert (sample.name, sample.labels["le"]) == ("rocketmq_rpc_latency_bucket", "5.0")
    assert sample.exemplar.labels == {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    with pytest.raises(URLError):
        await anyio.to_thread.run_sync(fetcher(url))


def test_a_late_snapshot_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    metrics.observe(observation())
    late = metrics._take_snapshot()
    metrics.observe(observation())
    assert sum(samples_of(metrics, "gantry_requests_total").values()) == 2
    monkeypatch.setattr(metrics, "_take_snapshot", lambda: late)
    assert sum(samples_of(metrics, "gantry_requests_total").values()) == 2


@pytest.mark.anyio
async def test_collection_times_out_if_the_event_loop_is_blocked(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proxy.observability.metrics.registry._SNAPSHOT_TIMEOUT", 0.05)
    metrics = Metrics()
    # A loop that does not run.
    stopped = asyncio.new_event_loop()
    metrics._loop = stopped
    with closing(stopped), pytest.raises(TimeoutError):
        await anyio.to_thread.run_sync(metrics.collect)


def fetcher(url: str, accept: str = "text/plain") -> Callable[[], str]:
    def fetch() -> str:
        try:
            with urlopen(Request(url, headers={"Accept": accept}), timeout=30) as answer:
                body: bytes = answer.read()
                return body.decode()
        except HTTPError as error:
            raise AssertionError(error.read()) from error

    return fetch

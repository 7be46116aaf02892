"""Exposition of time series by prometheus_client, and over HTTP."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from protocol_negotiation.peer import HostPort
from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Samples
from proxy.settings.naming import naming

# Prefix of the metrics of RIP-46, which also have RIP-46's constant labels.
_RIP46 = "rocketmq_"


def families(series: Iterable[tuple[Family, Samples]], cluster: str, node: str) -> Iterator[Metric]:
    """Yield a prometheus_client metric for each family. `cluster` and `node` are labels of RIP-46's metrics."""
    rip46_labels = {"cluster": cluster, "node_type": "proxy", "node_id": node}
    for family, samples in series:
        constant = rip46_labels if family.name.startswith(_RIP46) else {}
        labels = (*constant, *family.labels)
        labelled = {(*constant.values(), *map(_clean, key)): value for key, value in samples.items()}
        yield _MAKERS[family.kind](family, labels, labelled)


def _clean(value: str) -> str:
    # Names from clients may contain surrogates, which UTF-8 cannot encode.
    return value.encode("utf-8", "replace").decode()


def _counter(family: Family, labels: Labels, samples: Samples) -> Metric:
    metric = CounterMetricFamily(family.name, family.help, labels=labels)
    for key, value in samples.items():
        metric.add_metric(key, value)  # type: ignore[arg-type]  # values of counters are numbers
    return metric


def _gauge(family: Family, labels: Labels, samples: Samples) -> Metric:
    metric = GaugeMetricFamily(family.name, family.help, labels=labels)
    for key, value in samples.items():
        metric.add_metric(key, value)  # type: ignore[arg-type]  # values of gauges are numbers
    return metric


def _histogram(family: Family, labels: Labels, samples: Samples) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=labels)
    bounds = [*(_bound(bound) for bound in family.bounds), "+Inf"]
    for key, value in samples.items():
        assert isinstance(value, Distribution)
        buckets = [
            (bound, float(count), _exemplar(value, bucket))
            for bucket, (bound, count) in enumerate(zip(bounds, accumulate(value.counts), strict=True))
        ]
        metric.add_metric(key, buckets, value.total)  # type: ignore[arg-type]  # an exemplar may be None
    return metric


_MAKERS: dict[Kind, Callable[[Family, Labels, Samples], Metric]] = {
    Kind.COUNTER: _counter,
    Kind.GAUGE: _gauge,
    Kind.HISTOGRAM: _histogram,
}


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _exemplar(value: Distribution, bucket: int) -> Exemplar | None:
    exemplar = value.exemplars.get(bucket)
    if exemplar is None:
        return None
    trace_id, seconds, time = exemplar
    return Exemplar({"trace_id": trace_id}, seconds, time)


def serve(collector: Collector, address: str) -> Callable[[], None]:
    """Serve the metrics over HTTP in a separate thread and return a function that stops it.

    Raises OSError, which names the setting, if the address cannot be bound.
    """
    listen = HostPort.parse(address)
    registry = CollectorRegistry()
    registry.register(collector)
    host = listen.host or "0.0.0.0"  # noqa: S104  # as the settings say
    with naming(f"metrics_listen: {address}"):
        server, thread = start_http_server(listen.port, host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop

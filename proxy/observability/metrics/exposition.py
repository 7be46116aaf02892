"""The series as prometheus_client wants them, and served over HTTP."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from protocol_negotiation.peer import HostPort
from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Samples

# What RIP-46 names has the labels of RIP-46.
_RIP46 = "rocketmq_"


def families(series: Iterable[tuple[Family, Samples]], cluster: str, node: str) -> Iterator[Metric]:
    """Every family with its samples. cluster, node: who we are, for the families that RIP-46 names."""
    ours = {"cluster": cluster, "node_type": "proxy", "node_id": node}
    for family, samples in series:
        constant = ours if family.name.startswith(_RIP46) else {}
        labels = (*constant, *family.labels)
        shown = {(*constant.values(), *map(_clean, key)): value for key, value in samples.items()}
        yield _MAKERS[family.kind](family, labels, shown)


def _clean(value: str) -> str:
    # What a client wrote may not be text at all.
    return value.encode("utf-8", "replace").decode()


def _counter(family: Family, labels: Labels, samples: Samples) -> Metric:
    shown = CounterMetricFamily(family.name, family.text, labels=labels)
    for key, value in samples.items():
        shown.add_metric(key, value)  # type: ignore[arg-type]  # a counter's values are numbers
    return shown


def _gauge(family: Family, labels: Labels, samples: Samples) -> Metric:
    shown = GaugeMetricFamily(family.name, family.text, labels=labels)
    for key, value in samples.items():
        shown.add_metric(key, value)  # type: ignore[arg-type]  # as above
    return shown


def _histogram(family: Family, labels: Labels, samples: Samples) -> Metric:
    shown = HistogramMetricFamily(family.name, family.text, labels=labels)
    bounds = [*(_bound(bound) for bound in family.bounds), "+Inf"]
    for key, value in samples.items():
        assert isinstance(value, Distribution)
        buckets = [
            (bound, float(count), _exemplar(value, slot))
            for slot, (bound, count) in enumerate(zip(bounds, accumulate(value.counts), strict=True))
        ]
        shown.add_metric(key, buckets, value.total)  # type: ignore[arg-type]  # None for an exemplar does as well
    return shown


_MAKERS: dict[Kind, Callable[[Family, Labels, Samples], Metric]] = {
    Kind.COUNTER: _counter,
    Kind.GAUGE: _gauge,
    Kind.HISTOGRAM: _histogram,
}


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _exemplar(value: Distribution, slot: int) -> Exemplar | None:
    found = value.exemplars.get(slot)
    return None if found is None else Exemplar({"trace_id": found[0]}, found[1], found[2])


def serve(collector: Collector, address: str) -> Callable[[], None]:
    """Serve the metrics over HTTP, in a thread of its own; returns how to stop it. Raises OSError."""
    where = HostPort.parse(address)
    registry = CollectorRegistry()
    registry.register(collector)
    server, thread = start_http_server(where.port, where.host or "0.0.0.0", registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop

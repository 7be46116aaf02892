"""Observations for tests, and samples read from collectors."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from proxy.core.events import Observation
from proxy.observability.metrics.family import Family, Samples
from tests.proxy.fakes import peer

# Values by label values, in the order of the labels' names.
SampleValues = dict[tuple[str, ...], float]


def observation(
    code: str = "SEND_MESSAGE_V2",
    response: int = 0,
    topic: str | None = "orders",
    protocol: Any = "remoting",
    seconds: float = 0.004,
    **attributes: Any,
) -> Observation:
    """Return the observation of an answered request; by default it succeeded if `response` is 0."""
    ok = attributes.pop("ok", not response)
    observed = Observation(protocol, code, response, ok, peer(), None, 0.0, seconds)
    observed.topic = topic
    for name, value in attributes.items():
        setattr(observed, name, value)
    return observed


def text(collector: Collector) -> str:
    """Return the text format that Prometheus reads."""
    return generate_latest(collector).decode()


def samples_of(collector: Collector, name: str) -> SampleValues:
    """Return the exposed samples with this name."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text(collector))
        for sample in family.samples
        if sample.name == name
    }


def read(families: Iterable[tuple[Family, Samples]], selected: Family) -> dict[tuple[str, ...], Any]:
    """Return the samples of one family."""
    return dict(next(samples for family, samples in families if family == selected))

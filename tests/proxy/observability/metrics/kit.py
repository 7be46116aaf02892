"""Observations to make up, and samples to look at."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from proxy.core.events import Observation
from proxy.observability.metrics.family import Family, Samples
from tests.proxy.fakes import peer

Shown = dict[tuple[str, ...], float]


def observation(
    code: str = "SEND_MESSAGE_V2",
    response: int = 0,
    topic: str | None = "orders",
    protocol: Any = "remoting",
    seconds: float = 0.004,
    **more: Any,
) -> Observation:
    """An answered request; it went well where the response is 0."""
    seen = Observation(protocol, code, response, more.pop("ok", not response), peer(), None, 0.0, seconds)
    seen.topic = topic
    for name, value in more.items():
        setattr(seen, name, value)
    return seen


def text(collector: Collector) -> str:
    """The text that Prometheus reads."""
    return generate_latest(collector).decode()


def shown(collector: Collector, name: str) -> Shown:
    """Samples of this name: values by label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text(collector))
        for sample in family.samples
        if sample.name == name
    }


def read(families: Iterable[tuple[Family, Samples]], wanted: Family) -> dict[tuple[str, ...], Any]:
    """What was counted of one family."""
    return dict(next(samples for family, samples in families if family == wanted))

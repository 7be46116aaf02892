from collections import Counter
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy.context import Context
from proxy.metrics import Metrics, serve
from proxy.observation.request import of_request
from remoting.requests import REQUESTS
from tests.proxy.cluster.kit import free_port
from tests.proxy.kit import FakeChannel, request

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Values by the sample's name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(metrics: Metrics) -> Samples:
    registry = CollectorRegistry()
    registry.register(metrics)
    return parsed(generate_latest(registry).decode())


def served(metrics: Metrics, code: int, *answers: int) -> None:
    for answer in answers:
        metrics.observe(of_request(Context(FakeChannel(), request(code), REQUESTS.get(code), 0.0), answer, None, 1.0))


def test_requests_are_counted_by_name_and_answer() -> None:
    metrics = Metrics()
    served(metrics, 310, 0, 0, 2)
    served(metrics, 11, 19)
    # Numbers that clients make up are no labels.
    served(metrics, 99, 3)
    served(metrics, 12345, 3)
    assert scraped(metrics) == {
        ("gantry_requests_total", (("code", "SEND_MESSAGE_V2"), ("response", "0"))): 2,
        ("gantry_requests_total", (("code", "SEND_MESSAGE_V2"), ("response", "2"))): 1,
        ("gantry_requests_total", (("code", "PULL_MESSAGE"), ("response", "19"))): 1,
        ("gantry_requests_total", (("code", "unknown"), ("response", "3"))): 2,
    }


def test_what_others_count_is_read_when_it_is_asked_for() -> None:
    metrics = Metrics()
    diverted: Counter[str] = Counter()
    clients = ["a"]
    metrics.counter("gantry_diverted", "Diverted.", "reason", diverted)
    metrics.gauge("gantry_clients", "Clients.", lambda: len(clients))
    assert scraped(metrics) == {("gantry_clients", ()): 1}
    diverted["slave"] += 2
    clients.append("b")
    metrics.negotiations["plain"] += 1
    metrics.closed["idle"] += 3
    metrics.changes["joined"] += 4
    assert scraped(metrics) == {
        ("gantry_clients", ()): 2,
        ("gantry_diverted_total", (("reason", "slave"),)): 2,
        ("gantry_negotiations_total", (("outcome", "plain"),)): 1,
        ("gantry_connections_closed_total", (("cause", "idle"),)): 3,
        ("gantry_group_changes_total", (("change", "joined"),)): 4,
    }


def test_they_are_served_until_stopped() -> None:
    metrics, port = Metrics(), free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    stop = serve(metrics, f"127.0.0.1:{port}")
    try:
        for count in (1.0, 2.0):
            served(metrics, 310, 0)
            with urlopen(url, timeout=5) as answer:
                assert answer.headers.get_content_type() == "text/plain"
                samples = parsed(answer.read().decode())
            assert samples == {("gantry_requests_total", (("code", "SEND_MESSAGE_V2"), ("response", "0"))): count}
        with pytest.raises(OSError, match="in use"):
            serve(metrics, f"127.0.0.1:{port}")
    finally:
        stop()
    with pytest.raises(URLError):
        urlopen(url, timeout=5)

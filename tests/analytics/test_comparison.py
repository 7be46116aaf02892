"""Comparison of periods and of values: a planted change is found with its size, and chance is none."""

import numpy as np
import pytest

from analytics.comparison import Side, compare_periods, compare_values, lines
from analytics.incidents.tables import Tables
from analytics.jobs.local_tables import local_tables
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write

_START = int(kit.at(0).timestamp() // 3600)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return a day of two topics and two replicas: in the second half, `shop%orders` is slower and fails more."""
    root = tmp_path_factory.mktemp("comparison")
    random = np.random.default_rng(7)
    rows = []
    for minute in np.sort(random.uniform(0, 24 * 60, 8000)):
        late = minute >= 12 * 60
        changed = random.random() < 0.5
        topic, replica = ("shop%orders" if changed else "shop%other"), ("a", "b")[int(random.random() < 0.5)]
        slow = 2.0 if changed and late else 1.0
        row = {"topic": topic, "replica": replica, "latency_us": int(1000 * slow * np.exp(random.normal(0, 0.3)))}
        bad = random.random() < (0.05 if changed and late else 0.01) * (3.0 if replica == "b" else 1.0)
        rows.append((kit.failed if bad else kit.send)(kit.at(float(minute)), **row))
    write(root, rows)
    found = local_tables(str(root), None, None)
    assert found is not None
    return found[0]


def test_periods_differ_where_something_changed(made: Tables) -> None:
    changes = compare_periods(made, Side(_START, _START + 12), Side(_START + 12, _START + 24))
    sure = {(each.subject, each.measure): each for each in changes if each.confidence >= 0.99}
    failed = sure["shop%orders", "failed share"]
    assert failed.low < 5.0 < failed.high
    latency = sure["shop%orders", "send latency (ms, geometric mean)"]
    assert latency.ratio == pytest.approx(2.0, rel=0.1)
    assert not any(subject == "shop%other" for subject, _ in sure)
    (first, *_) = lines(changes)
    assert "confidence" in first


def test_two_halves_without_a_change_are_equal(made: Tables) -> None:
    changes = compare_periods(made, Side(_START, _START + 6), Side(_START + 6, _START + 12))
    assert [each for each in changes if each.confidence >= 0.99] == []
    assert next(lines(changes)).startswith("No change is surer than 99%")


def test_replicas_are_compared_in_the_same_time(made: Tables) -> None:
    changes = {each.measure: each for each in compare_values(made, "replica", "a", "b")}
    failed = changes["failed share"]
    assert failed.confidence >= 0.99
    assert failed.low < 3.0 < failed.high
    assert changes["requests per hour"].confidence < 0.99
    with pytest.raises(ValueError, match="the records have no replica 'c'; they have a, b"):
        compare_values(made, "replica", "a", "c")

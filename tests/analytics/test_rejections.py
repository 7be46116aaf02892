"""Failed sends beside polls that go on, and beside successes of which few are recorded."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.failures import failures
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array
from analytics.incidents.tables import Tables
from remoting.codes import ResponseCode

_PERIODS = 300


def _requests(topic: str, sends: float, polls: float) -> pd.DataFrame:
    """Return the totals of a topic with so many requests in each period."""
    names = {"topic": topic, "tenant": topic.partition("%")[0], "replica": "r"}
    numbers = {"t": np.arange(_PERIODS), "n": sends + polls, "sends": sends, "rows_": sends + polls}
    return pd.concat([pd.DataFrame({"dimension": name, "value": value, **numbers}) for name, value in names.items()])


def _failed(topic: str, counts: Array, response: int, client: str = "c") -> pd.DataFrame:
    """Return the failed sends of a topic by period."""
    owner = topic.partition("%")[0]
    names: dict[str, Any] = {"topic": topic, "tenant": owner, "replica": "r", "client": client, "response": response}
    rows = pd.DataFrame({"t": np.arange(_PERIODS), "n": counts, "rows_": counts, "event": "failed", "op": "send"})
    return rows[rows["n"] > 0].assign(bytes=0.0, grp=None, broker=None, network=None, sdk=None, **names)


def _found(totals: list[pd.DataFrame], events: list[pd.DataFrame]) -> list[Finding]:
    sums = pd.concat(totals).groupby(["dimension", "value", "t"], as_index=False).sum()
    members = pd.DataFrame({"sdk": ["grpc JAVA 5.0.7"], "first_us": [0.0]})
    blank = pd.DataFrame()
    failed = pd.concat(events, ignore_index=True)
    return failures(Tables(sums, failed, blank, blank, members, blank, blank, blank))


def _during(start: int, end: int, number: float) -> Array:
    places = np.arange(_PERIODS)
    return np.where((places >= start) & (places < end), number, 0.0)


def test_a_tenants_quota_is_one_finding_although_its_topics_have_polls_too() -> None:
    """Half of its sends are rejected; one topic has few polls, and the others many."""
    topics = {"acme%a": (40.0, 5.0), "acme%b": (10.0, 400.0), "acme%c": (10.0, 400.0), "acme%d": (10.0, 400.0)}
    totals = [_requests(topic, *rates) for topic, rates in {**topics, "other%a": (40.0, 200.0)}.items()]
    events = [_failed(topic, _during(100, 112, sends / 2), 42900) for topic, (sends, _) in topics.items()]
    (found,) = _found(totals, events)
    assert (found.kind, dict(found.about).get("tenant"), found.facts["scope"]) == ("throttling", "acme", "tenant")


@pytest.mark.parametrize(
    ("response", "kind"),
    [(int(ResponseCode.SYSTEM_BUSY), "error_growth"), (int(ResponseCode.FLOW_CONTROL), "throttling")],
)
def test_a_server_that_is_more_and_more_busy_is_no_limit(response: int, kind: str) -> None:
    share = np.clip((np.arange(_PERIODS) - 100) / 60, 0.0, 1.0) * (np.arange(_PERIODS) < 160) / 3
    totals = [_requests(f"acme%{number}", 30.0, 30.0) for number in range(4)]
    (found,) = _found(totals, [_failed("acme%1", np.round(30 * share), response)])
    assert found.kind == kind


def test_a_busy_server_is_no_limit_although_most_clients_are_told_too_many_requests() -> None:
    """Over gRPC, a busy server and a limit have one code."""
    share = np.clip((np.arange(_PERIODS) - 100) / 60, 0.0, 1.0) * (np.arange(_PERIODS) < 160) / 3
    totals = [_requests(f"acme%{number}", 60.0, 60.0) for number in range(4)]
    events = [_failed("acme%1", np.round(count * share), code) for count, code in ((40.0, 42900), (20.0, 2))]
    (found,) = _found(totals, events)
    assert (found.kind, found.facts["response"]) == ("error_growth", "2 (system busy)")


def test_a_period_without_a_sampled_success_does_not_fail() -> None:
    """A few of a thousand sends fail and are all recorded; of the others, one in four hundred."""
    random = np.random.default_rng(8)
    bad = random.poisson(2.0, _PERIODS).astype(float)
    stored = random.poisson(3.0, _PERIODS).astype(float)
    # None of the others happens to be recorded.
    bad[150:152], stored[150:152] = 6.0, 0.0
    numbers = {"t": np.arange(_PERIODS), "n": 400 * stored + bad, "sends": 400 * stored + bad, "rows_": stored + bad}
    own = [pd.DataFrame({"dimension": "client", "value": "c-1", **numbers})]
    others = [_requests(f"acme%{number}", 2000.0, 0.0) for number in range(4)]
    assert _found(own + others, [_failed("acme%1", bad, 50001, "c-1")]) == []

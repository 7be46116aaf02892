"""Findings of several address ranges of one zone."""

import pandas as pd
import pytest

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.merging import incidents
from analytics.incidents.tables import Tables
from analytics.incidents.zones import by_zone


def _tables(*networks: str) -> Tables:
    blank = pd.DataFrame()
    totals = pd.DataFrame({"dimension": "network", "value": list(networks)})
    return Tables(totals, blank, blank, blank, blank, blank, blank, blank)


def _finding(topic: str, network: str, kind: str = "error_burst", start: float = 0.0) -> Finding:
    about = {"topic": topic, "network": network}
    facts = {"scope": "topic", "response": "1"}
    return Finding(Kind(kind), start, start + 3600, about, 0.5, 0.01, 50.0, 200.0, 3, False, facts)


_ELSEWHERE = _tables("10.2.1.0/24", "10.2.3.0/24", "10.7.1.0/24")


def test_a_zone_whose_topics_fail_together_is_one_incident() -> None:
    findings = [
        _finding("a", "10.2.1.0/24"),
        _finding("b", "10.2.3.0/24", start=300),
        _finding("a", "10.2.1.0/24", "latency_spike"),
    ]
    (incident,) = incidents(by_zone(_ELSEWHERE, findings), 1e6)
    assert (incident.kind, dict(incident.about)) == ("error_burst", {"network": "10.2.0.0/16"})
    assert incident.affected == 400
    assert "addresses 10.2.0.0/16" in incident.happened


@pytest.mark.parametrize(
    ("tables", "other"),
    [
        (_ELSEWHERE, _finding("b", "10.7.1.0/24")),
        (_ELSEWHERE, _finding("b", "10.2.3.0/24", start=7200)),
        (_ELSEWHERE, _finding("b", "10.2.1.0/24")),
        (_tables("10.2.1.0/24", "10.2.3.0/24"), _finding("b", "10.2.3.0/24")),
    ],
    ids=["another zone", "later", "the same range", "the only zone"],
)
def test_other_findings_stay_apart(tables: Tables, other: Finding) -> None:
    assert by_zone(tables, [_finding("a", "10.2.1.0/24"), other]) == [_finding("a", "10.2.1.0/24"), other]

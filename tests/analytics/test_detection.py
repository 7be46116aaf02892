"""The detectors find the incidents that the generator plants."""

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import generator
from analytics.evaluate import Finding, findings, main, match_findings, report
from analytics.generator.truth import Incident
from analytics.jobs.incidents import find
from analytics.jobs.report import Order
from tests.analytics import frames as kit


def test_planted_incidents_are_found(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = generator.generate(tmp_path, generator.Plan(records=120_000, days=4, tenants=2, seed=3))
    found = find(lambda: nullcontext(spark), str(tmp_path), Order())
    verdict = match_findings(findings(found.incidents), truth.incidents)
    with capsys.disabled():
        print("\n" + report(truth, verdict))
    assert len(truth.incidents) == 10
    assert verdict.recall >= 0.9
    assert verdict.precision >= 0.9


_INCIDENT = Incident(1, "error_burst", kit.at(60), kit.at(90), "", topic="a")


def _finding(kind: str = "error_burst", minutes: float = 60, **about: str) -> Finding:
    start = kit.at(minutes)
    return Finding(kind, "warning", start, start + timedelta(minutes=5), "", about)


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (_finding(topic="a"), "found"),
        (_finding(topic="a", client_id="c"), "found"),
        (_finding(topic="b"), "false"),
        (_finding(topic="a", minutes=121), "false"),
        (_finding(topic="a", minutes=110), "found"),
        (_finding("traffic_drop", topic="a"), "explained"),
        # Names no attribute of the incident.
        (_finding(client_id="c"), "explained"),
    ],
)
def test_finding_is_matched_with_incidents(finding: Finding, verdict: str) -> None:
    answer = match_findings([finding], [_INCIDENT])
    assert {"found": bool(answer.found), "explained": bool(answer.explained), "false": bool(answer.false)} == {
        name: name == verdict for name in ("found", "explained", "false")
    }
    assert answer.recall == (1.0 if verdict == "found" else 0.0)
    assert answer.precision == (0.0 if verdict == "false" else 1.0)


def test_evaluation_of_other_records_raises_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "was not generated" in capsys.readouterr().err

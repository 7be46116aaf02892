"""Objectives: budgets and burn rates equal those of the rows; deliveries are counted first in, first out."""

import json
from pathlib import Path

import numpy as np
import pytest

from analytics.command import main
from analytics.slo import ObjectivesError, _late, parse
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write

OBJECTIVES = """
[[objective]]
name = "accepted"
kind = "availability"
target = 0.99
topic = "shop%*"

[[objective]]
name = "fast"
kind = "latency"
target = 0.9
milliseconds = 10

[[objective]]
name = "taken"
kind = "delivery"
target = 0.9
minutes = 10
group = "shop%orders-billing"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return ten hours: in the last, one of ten sends fails; billing takes nothing from minute 120 to 180."""
    rows = []
    for minute in range(600):
        bad = minute >= 540 and minute % 10 == 0
        rows.append((kit.failed if bad else kit.send)(kit.at(minute), latency_us=20_000 if minute % 20 == 0 else 1000))
        waits = 180 if 120 <= minute < 180 else minute
        if not bad:
            rows.append(kit.receive(kit.at(waits, 10), messages=1, attempt=1))
    write(tmp_path / "records", rows)
    return tmp_path


def test_budgets_and_burn_rates(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "slo.toml").write_text(OBJECTIVES)
    arguments = ["slo", str(root / "records"), "--objectives", str(root / "slo.toml")]
    assert main([*arguments, "--json", "--metrics", str(root / "slo.prom")]) == 0
    accepted, fast, taken = map(json.loads, capsys.readouterr().out.splitlines())
    assert (accepted["total"], accepted["bad"]) == (600 + 594, 6)
    assert accepted["budget_left"] == pytest.approx(1 - 6 / (1194 * 0.01))
    assert accepted["burn_rates"]["1h"] == pytest.approx(6 / 114 / 0.01)
    assert (fast["bad"], fast["alerts"]) == (30, [])
    # Messages of minutes 120 to about 170 had to wait for more than ten minutes.
    assert 45 <= taken["bad"] <= 55
    assert taken["total"] == 594
    assert 'gantry_slo_burn_rate{objective="accepted",window="1h"} 5.26' in (root / "slo.prom").read_text()


def test_fast_burn_is_an_alert_and_an_exit_status(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "slo.toml").write_text(OBJECTIVES.replace("0.99\n", "0.999\n"))
    assert main(["slo", str(root / "records"), "--objectives", str(root / "slo.toml")]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("accepted: 99.4975% good, target 99.9000%; budget exceeded")
    assert "ALERT 1h 6h 3d" in first


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("milliseconds = 10", ""), "latency needs milliseconds"),
        (('kind = "latency"', 'kind = "speed"'), "objective.1.kind: Input should be"),
        (("0.99\n", "1.0\n"), "objective.0.target: Input should be less than 1"),
        (('name = "fast"', 'name = "taken"'), "two objectives have the name 'taken'"),
        (("minutes = 10", "hours = 1"), "there is no such key"),
        (("[[", "[["), ""),
    ],
)
def test_mistakes_name_the_key(change: tuple[str, str], sentence: str) -> None:
    text = OBJECTIVES.replace(*change)
    if not sentence:
        assert len(parse(text)) == 3
        return
    with pytest.raises(ObjectivesError) as raised:
        parse(text)
    assert sentence in str(raised.value)


def test_what_a_group_takes_beyond_what_is_due_says_nothing_about_later_messages() -> None:
    sent = np.full(100, 10.0)
    stopped = np.where(np.arange(100) < 50, 10.0, 0.0)
    late = float(_late(sent, stopped, 2).sum())
    assert late == 480.0
    backlog = stopped.copy()
    backlog[0] += 600
    assert _late(sent, backlog, 2).sum() == pytest.approx(late, abs=10)
    assert _late(sent, 2 * stopped, 2).sum() == pytest.approx(late, abs=10)
    # A message may be taken in the period before its send is recorded.
    assert _late(np.roll(sent, 1), sent, 2).sum() == 0.0

"""The systemd unit, checked by systemd."""

import re
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, drain_seconds, run, settings

UNIT = DEPLOY / "gantry.service"


def test_unit_is_valid(tmp_path: Path) -> None:
    """For a unit whose program is not installed, systemd reports only that."""
    unit = tmp_path / "gantry.service"
    unit.write_text(UNIT.read_text().replace("/opt/gantry/bin/gantry", sys.executable))
    assert run("systemd-analyze", "verify", "--man=no", unit) == ""


def test_unit_exposure_is_ok() -> None:
    """Exposure ranges from 0 to 10 (100 as a threshold): systemd calls values below 2 OK."""
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", UNIT)
    assert re.search(r"Overall exposure level for gantry.service: 1\.\d OK", said)


@pytest.mark.parametrize("name", ["gantry-analytics.service", "gantry-analytics.timer"])
def test_analytics_units_are_valid(name: str, tmp_path: Path) -> None:
    for path in (DEPLOY / "analytics").glob("gantry-analytics.*"):
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/gantry/bin/gantry", sys.executable))
    assert run("systemd-analyze", "verify", "--man=no", tmp_path / name) == ""


def test_stop_timeout_covers_a_drain() -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > drain_seconds(settings(DEPLOY / "gantry.toml"))

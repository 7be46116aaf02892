"""The systemd unit, judged by systemd."""

import re
import sys
from pathlib import Path

from tests.deploy.kit import DEPLOY, drain_seconds, run, settings

UNIT = DEPLOY / "gantry.service"


def test_the_unit_is_one(tmp_path: Path) -> None:
    """Of a unit whose program is not installed systemd says just that."""
    unit = tmp_path / "gantry.service"
    unit.write_text(UNIT.read_text().replace("/opt/gantry/bin/gantry", sys.executable))
    assert run("systemd-analyze", "verify", "--man=no", unit) == ""


def test_the_unit_is_confined() -> None:
    """Exposure is judged from 0 to 10 (100 as a threshold): below 2 is what systemd calls OK."""
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", UNIT)
    assert re.search(r"Overall exposure level for gantry.service: 1\.\d OK", said)


def test_there_is_time_for_a_drain() -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > drain_seconds(settings(DEPLOY / "gantry.toml"))

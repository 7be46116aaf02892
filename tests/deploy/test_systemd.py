"""The systemd unit, checked by systemd."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from proxy.settings.loading import check_access, check_backend
from tests.deploy.files import DEPLOY, ROOT, drain_seconds, run, settings

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


def _values(unit: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.+)$", unit.read_text(), re.MULTILINE))


def test_sample_paths_are_writable() -> None:
    """The rest of the file system is read-only to the unit."""
    values = _values(UNIT)
    assert values["ProtectSystem"] == "strict"
    writable = (Path("/var/lib", values["StateDirectory"]), Path("/var/log", values["LogsDirectory"]))
    samples = re.findall(r'^# (?:directory|audit) = "(.*)"$', (DEPLOY / "gantry.toml").read_text(), re.MULTILINE)
    assert len(samples) == 3
    for sample in samples:
        assert any(Path(sample).is_relative_to(directory) for directory in writable), sample


def test_analytics_unit_can_read_the_records() -> None:
    """Records have mode 0600, in directories of mode 0700."""
    own, analytics = _values(UNIT), _values(DEPLOY / "analytics" / "gantry-analytics.service")
    assert (own["User"], own["Group"]) == (analytics["User"], analytics["Group"])
    assert "DynamicUser" not in own.keys() | analytics.keys()
    records = re.search(r"RECORDS=(\S+)", analytics["Environment"])
    assert records is not None
    for file in (DEPLOY / "gantry.toml", ROOT / "docs" / "analytics.md"):
        assert records[1] in file.read_text()


def test_documented_configuration_of_the_unit_starts(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "deployment.md").read_text()
    sample = re.search(r"^`/etc/gantry/gantry.toml`.*\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert sample is not None
    file = tmp_path / "gantry.toml"
    file.write_text(textwrap.dedent(sample[1]))
    found = settings(file)
    check_backend(found)
    check_access(found)


def test_stop_timeout_covers_a_drain() -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > drain_seconds(settings(DEPLOY / "gantry.toml"))

"""The generated reference pages agree with the code."""

from pathlib import Path

import pytest

from docs.generate.__main__ import main
from docs.generate.configuration import settings
from docs.generate.pages import COMMAND, ROOT, render, stale, write
from proxy.traffic_rules.model import RuleFile
from remoting.requests import REQUESTS


def test_generated_pages_are_current() -> None:
    assert stale() == [], f"{COMMAND} writes them"


def test_check_reports_a_stale_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("docs.generate.__main__.stale", lambda: ["docs/reference/metrics.md"])
    assert main(["--check"]) == 1
    assert f"docs/reference/metrics.md is stale: run {COMMAND}" in capsys.readouterr().err


def test_write_changes_only_pages_that_differ(tmp_path: Path) -> None:
    for folder in ("docs/reference", "deploy"):
        (tmp_path / folder).mkdir(parents=True)
    assert sorted(write(tmp_path)) == sorted(render())
    (tmp_path / "docs" / "reference" / "cli.md").write_text("outdated")
    assert write(tmp_path) == ["docs/reference/cli.md"]
    assert write(tmp_path) == []


def test_configuration_page_describes_every_setting() -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for item in settings():
        assert f"| `{item.key}` |" in text
        assert item.description, item.key


def test_request_table_page_has_every_request() -> None:
    text = (ROOT / "docs" / "reference" / "requests.md").read_text()
    assert all(f"| {int(spec.code)} | {spec.name} |" in text for spec in REQUESTS.values())
    # The introduction explains each value of this column.
    assert all(f"`{spec.replica.value}`" in text for spec in REQUESTS.values())


def test_traffic_rules_page_has_every_kind() -> None:
    text = (ROOT / "docs" / "reference" / "traffic-rules.md").read_text()
    kinds = RuleFile.model_json_schema()["properties"]["rule"]["items"]["discriminator"]["mapping"]
    assert all(f"## `{kind}`" in text for kind in kinds)

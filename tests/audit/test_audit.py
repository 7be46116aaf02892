"""The audit fails unless each part ran and found nothing."""

import json
import subprocess
from collections.abc import Sequence

import pytest

from tests.audit import run
from tests.audit.advisories import AuditImpossible, Vulnerability, locked
from tests.audit.run import check_code, find_vulnerabilities
from tests.paths import ROOT

_CLEAN = {"name": "h11", "version": "0.16.0", "vulns": []}
_FLAW = {"id": "GHSA-1", "fix_versions": ["0.16.0"], "aliases": [], "description": ""}


def pip_audit(status: int, stdout: str, stderr: str = "") -> run.Run:
    def execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    return execute


def report(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_vulnerabilities_are_found() -> None:
    flawed = {"name": "h11", "version": "0.14.0", "vulns": [_FLAW]}
    found = find_vulnerabilities("x.lock", pip_audit(1, report(_CLEAN, flawed)))
    assert found == (2, [Vulnerability("h11", "0.14.0", "GHSA-1", ("0.16.0",))])
    assert find_vulnerabilities("x.lock", pip_audit(0, report(_CLEAN))) == (1, [])


@pytest.mark.parametrize(
    ("status", "stdout", "message"),
    [
        (1, "", "the database osv cannot be reached, or pip-audit failed: Failed to resolve 'api.osv.dev'"),
        (0, "", "the database osv cannot be reached"),
        (0, report(), "not audited by osv: no package was found"),
        (0, report(_CLEAN, {"name": "private", "skip_reason": "not on PyPI"}), "not audited by osv: private"),
        (1, report(_CLEAN), "pip-audit failed"),
    ],
)
def test_a_database_that_gives_no_answer_is_no_success(status: int, stdout: str, message: str) -> None:
    with pytest.raises(AuditImpossible, match=message):
        find_vulnerabilities("x.lock", pip_audit(status, stdout, "Traceback\nFailed to resolve 'api.osv.dev'\n"))


@pytest.fixture
def vulnerabilities_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, result in (("write_sboms", {}), ("check_code", ([], 0))):
        monkeypatch.setattr(run, part, lambda _, result=result: result)


@pytest.mark.usefixtures("vulnerabilities_alone")
def test_the_package_index_is_asked_if_osv_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    def execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if "osv" in command:
            return subprocess.CompletedProcess(command, 1, "", "no network")
        return pip_audit(0, report(_CLEAN))(command)

    assert run.main(execute) == 0
    assert "1 packages, 0 vulnerabilities (pypi)" in capsys.readouterr().out


@pytest.mark.usefixtures("vulnerabilities_alone")
def test_newer_releases_are_named_if_no_database_can_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    packages = locked((ROOT / run.LOCKS[0]).read_text())
    entries = [{"name": name, "version": packages[name], "latest_version": "99"} for name in ("h11", "orjson")]

    def execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if command[:3] == ["uv", "pip", "list"]:
            listed = entries[:1] if "--outdated" in command else entries
            return subprocess.CompletedProcess(command, 0, json.dumps(listed), "")
        return pip_audit(1, "", "no network")(command)

    assert run.main(execute) == 2
    printed = capsys.readouterr().out
    assert "no correction has been published of 1 of " in printed
    assert f"a newer release have h11 {packages['h11']} (99)" in printed


def test_main_fails_if_a_part_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(pip_audit(3, "", "no network")) == 2
    assert "audit: 3 parts could not run" in capsys.readouterr().out


def test_the_product_has_no_unexplained_finding_of_the_security_rules() -> None:
    findings, exceptions = check_code()
    assert findings == []
    assert exceptions > 0

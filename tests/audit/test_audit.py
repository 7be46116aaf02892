"""The audit fails unless each part ran and found nothing."""

import json
import subprocess
from collections.abc import Sequence

import pytest

from tests.audit import run
from tests.audit.run import AuditImpossible, Vulnerability, check_code, find_vulnerabilities

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
        (1, "", "the vulnerability database cannot be reached, or pip-audit failed: Failed to resolve 'api.osv.dev'"),
        (0, "", "the vulnerability database cannot be reached"),
        (0, report(), "not audited: no package was found"),
        (0, report(_CLEAN, {"name": "private", "skip_reason": "not on PyPI"}), "not audited: private"),
        (1, report(_CLEAN), "pip-audit failed"),
    ],
)
def test_a_database_that_gives_no_answer_is_no_success(status: int, stdout: str, message: str) -> None:
    with pytest.raises(AuditImpossible, match=message):
        find_vulnerabilities("x.lock", pip_audit(status, stdout, "Traceback\nFailed to resolve 'api.osv.dev'\n"))


def test_main_fails_if_a_part_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(pip_audit(3, "", "no network")) == 2
    assert "audit: 3 parts could not run" in capsys.readouterr().out


def test_the_product_has_no_unexplained_finding_of_the_security_rules() -> None:
    findings, exceptions = check_code()
    assert findings == []
    assert exceptions > 0

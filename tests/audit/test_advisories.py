"""A clone of the advisory database is evaluated as OSV describes it, and its age is stated."""

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.audit import run
from tests.audit.advisories import Advisories, AuditImpossible, Vulnerability, is_affected, locked


def advisory(name: str, *events: dict[str, str], versions: Sequence[str] = (), withdrawn: bool = False) -> str:
    affected: dict[str, object] = {"package": {"name": name, "ecosystem": "PyPI"}, "versions": list(versions)}
    affected["ranges"] = [{"type": "GIT", "events": []}, {"type": "ECOSYSTEM", "events": list(events)}]
    return yaml.safe_dump({"id": "PYSEC-1", "affected": [affected], **({"withdrawn": "2024"} if withdrawn else {})})


def clone(folder: Path, *texts: str, date: str = "2026-01-01T00:00:00Z") -> Path:
    for number, text in enumerate(texts):
        name = yaml.safe_load(text)["affected"][0]["package"]["name"].lower()
        (folder / "vulns" / name).mkdir(parents=True, exist_ok=True)
        (folder / "vulns" / name / f"PYSEC-{number}.yaml").write_text(text)
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "x"),
    ):
        environment = {"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
        subprocess.run(["git", "-C", str(folder), *command], check=True, env=environment)
    return folder


@pytest.mark.parametrize(
    ("version", "affected"),
    [("1.0", False), ("1.1", True), ("1.9.9", True), ("2.0", False), ("3.0", True), ("3.5", True), ("3.6", False)],
)
def test_a_version_is_affected_if_a_range_or_the_list_has_it(version: str, affected: bool) -> None:
    text = advisory("h11", {"introduced": "1.1"}, {"fixed": "2.0"}, {"introduced": "3.0"}, {"last_affected": "3.5"})
    assert is_affected(yaml.safe_load(text)["affected"][0], version) is affected
    listed = advisory("h11", versions=[version])
    assert is_affected(yaml.safe_load(listed)["affected"][0], version)


def test_vulnerabilities_of_a_lock_are_found(tmp_path: Path) -> None:
    lock = "H11==0.14.0 \\\n    --hash=sha256:00\nanyio==4.0 ; python_version > '3'\n"
    assert locked(lock) == {"h11": "0.14.0", "anyio": "4.0"}
    folder = clone(
        tmp_path,
        advisory("H11", {"introduced": "0"}, {"fixed": "0.16.0"}),
        advisory("anyio", {"introduced": "0"}, withdrawn=True),
        advisory("other", {"introduced": "0"}),
    )
    database = Advisories.open(folder)
    assert database.find(locked(lock)) == [Vulnerability("h11", "0.14.0", "PYSEC-1", ("0.16.0",))]
    assert database.days_old(datetime(2026, 1, 31, 12, tzinfo=UTC)) == 30


def test_other_folders_and_unreadable_advisories_are_no_success(tmp_path: Path) -> None:
    with pytest.raises(AuditImpossible, match="is not a clone"):
        Advisories.open(tmp_path)
    folder = clone(tmp_path, advisory("h11", {"introduced": "0"}))
    next(folder.glob("vulns/h11/*")).write_text("affected: [")
    with pytest.raises(AuditImpossible, match="cannot be read"):
        Advisories.open(folder).find({"h11": "1.0"})


@pytest.mark.parametrize(("recent", "status"), [(True, 0), (False, 2)])
def test_an_old_clone_is_no_success(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recent: bool,
    status: int,
) -> None:
    for part, result in (("write_sboms", {}), ("check_code", ([], 0))):
        monkeypatch.setattr(run, part, lambda _, result=result: result)
    date = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" if recent else "2024-10-10T00:00:00Z"
    folder = clone(tmp_path, advisory("unknown", {"introduced": "0"}), date=date)
    assert run.main(_nothing_installed, advisories=folder) == status
    printed = capsys.readouterr().out
    assert f"0 vulnerabilities (PyPA of {date[:10]})" in printed
    assert ("days old" in printed) is not recent


def _nothing_installed(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess(command, 0, json.dumps([]), "")

"""The command's output and exit status; and a test for every finding."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.tools.doctor import report
from proxy.tools.doctor.connection import reason
from proxy.tools.doctor.findings import CATALOGUE, Finding, Level, finding
from tests.ports import free_port
from tests.proxy.tools.doctor.servers import replica

HERE = Path(__file__).parent


def test_every_finding_is_provoked_by_a_test() -> None:
    told = set(re.findall(r'"([a-z]+\.[a-z_]+)"', "".join(file.read_text() for file in HERE.glob("test_*.py"))))
    assert CATALOGUE.keys() - told == set()


def test_every_bad_finding_has_a_remedy() -> None:
    assert [code for code, entry in CATALOGUE.items() if entry.level > Level.NOTE and not entry.remedy] == []


def test_finding_is_formatted_as_text() -> None:
    found = finding("idle.cut", seconds=35.0)
    plain = report.line(found, coloured=False)
    first, *advice = plain.splitlines()
    assert first == "  fail  idle        a connection was cut after 35 s of silence"
    assert advice[0].strip().startswith("→ a load balancer")
    assert all(len(line) <= 112 for line in plain.splitlines())
    assert "\033[1;31mfail\033[0m" in report.line(found, coloured=True)


@pytest.mark.parametrize(
    ("levels", "status"),
    [((), 0), ((Level.OK, Level.NOTE), 0), ((Level.OK, Level.WARN), 1), ((Level.FAIL, Level.WARN), 2)],
)
def test_exit_status_follows_the_worst_finding(levels: tuple[Level, ...], status: int) -> None:
    assert report.exit_status([Finding("a.b", level, "", "") for level in levels]) == status


def test_report_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["doctor", f"127.0.0.1:{port}", "--json"]) == 2
    describe_bytes = json.loads(capfd.readouterr().out)
    assert (describe_bytes["endpoint"], describe_bytes["status"]) == (f"127.0.0.1:{port}", "fail")
    assert [item["code"] for item in describe_bytes["findings"]] == ["name.address", "tcp.refused"]
    assert describe_bytes["findings"][1]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["127.0.0.1", "--group", "g"], "--group and --write need --topic"),
        (["127.0.0.1", "--key", "k.pem"], "--key needs --cert"),
        (["127.0.0.1", "--ca", "/nowhere/ca.pem"], "/nowhere/ca.pem: no such file"),
    ],
)
def test_contradictory_arguments_are_refused(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert capfd.readouterr().err == f"gantry: {complaint}\n"


@pytest.mark.parametrize("endpoint", ["host:port", ":8080", "host:0", "unix:/run/gantry.sock"])
def test_invalid_endpoints_are_refused(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", endpoint])
    assert "argument HOST:PORT" in capfd.readouterr().err


def endpoint_of_report(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["doctor", *arguments, "--json", "--timeout", "1"])
    endpoint: str = json.loads(capfd.readouterr().out)["endpoint"]
    return endpoint


def test_endpoint_defaults_to_the_variable_and_the_profile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "profiles.toml"
    named, given, of_profile = (f"127.0.0.1:{free_port()}" for _ in range(3))
    profiles.write_text(f'current = "prod"\n[prod]\nendpoint = "{of_profile}"\n')
    monkeypatch.setenv("GANTRY_PROFILES", str(tmp_path / "none.toml"))
    monkeypatch.delenv("GANTRY_PROFILE", raising=False)
    monkeypatch.setenv("GANTRY_ENDPOINT", named)
    assert endpoint_of_report(capfd) == named
    assert endpoint_of_report(capfd, given) == given
    # As with the other commands, the variable replaces the current profile, and an explicit profile the variable.
    monkeypatch.setenv("GANTRY_PROFILES", str(profiles))
    assert endpoint_of_report(capfd) == named
    assert endpoint_of_report(capfd, "--profile", "prod") == of_profile
    assert endpoint_of_report(capfd, given, "--profile", "prod") == given
    monkeypatch.delenv("GANTRY_ENDPOINT")
    assert endpoint_of_report(capfd) == of_profile


def test_invalid_endpoint_of_the_variable_is_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTRY_ENDPOINT", "unix:/run/gantry.sock")
    assert main(["doctor"]) == 2
    assert capfd.readouterr().err == "gantry: needs a host and a port: 'unix:/run/gantry.sock'\n"


def test_the_summary_counts_in_words() -> None:
    assert report.summary([finding("tcp.refused", address="a:1", error="e")]) == "0 ok, 0 warnings, 1 failure"


def test_a_refused_connection_has_the_reason_without_the_address() -> None:
    assert reason(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")) == "connection refused"


@pytest.mark.anyio
async def test_command_prints_findings_and_summary(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        command = [sys.executable, "-m", "proxy", "doctor", str(app.addresses[0]), "--topic", "orders"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert "  ok    endpoint    the server is Gantry\n" in done.stdout
    assert re.search(r"\n\n\d+ ok, 0 warnings, 0 failures\n$", done.stdout)
    assert done.returncode == 0

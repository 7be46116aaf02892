"""What the command prints, and how it ends; and that nothing in the catalogue goes untested."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.tools.doctor import report
from proxy.tools.doctor.findings import CATALOGUE, Finding, Level, finding
from tests.ports import free_port
from tests.proxy.tools.doctor.kit import replica

HERE = Path(__file__).parent


def test_every_finding_is_provoked_by_a_test() -> None:
    told = set(re.findall(r'"([a-z]+\.[a-z_]+)"', "".join(file.read_text() for file in HERE.glob("test_*.py"))))
    assert CATALOGUE.keys() - told == set()


def test_every_finding_that_is_bad_says_what_to_change() -> None:
    assert [code for code, entry in CATALOGUE.items() if entry.level > Level.NOTE and not entry.remedy] == []


def test_a_finding_as_text() -> None:
    found = finding("idle.cut", seconds=35.0)
    plain = report.line(found, coloured=False)
    first, *advice = plain.splitlines()
    assert first == "  fail  idle        a connection that was silent for 35 s has been cut"
    assert advice[0].strip().startswith("→ something between")
    assert all(len(line) <= 112 for line in plain.splitlines())
    assert "\033[1;31mfail\033[0m" in report.line(found, coloured=True)


@pytest.mark.parametrize(
    ("levels", "status"),
    [((), 0), ((Level.OK, Level.NOTE), 0), ((Level.OK, Level.WARN), 1), ((Level.FAIL, Level.WARN), 2)],
)
def test_the_exit_status(levels: tuple[Level, ...], status: int) -> None:
    assert report.exit_status([Finding("a.b", level, "", "") for level in levels]) == status


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["doctor", f"127.0.0.1:{port}", "--json"]) == 2
    said = json.loads(capfd.readouterr().out)
    assert (said["endpoint"], said["status"]) == (f"127.0.0.1:{port}", "fail")
    assert [item["code"] for item in said["findings"]] == ["name.address", "tcp.refused"]
    assert said["findings"][1]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["127.0.0.1", "--group", "g"], "--group and --write need --topic"),
        (["127.0.0.1", "--key", "k.pem"], "--key needs --cert"),
        (["127.0.0.1", "--ca", "/nowhere/ca.pem"], "/nowhere/ca.pem: no such file"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert capfd.readouterr().err == f"gantry: {complaint}\n"


@pytest.mark.parametrize("endpoint", ["host:port", ":8080", "host:0", "unix:/run/gantry.sock"])
def test_endpoints_that_are_none(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", endpoint])
    assert "argument HOST:PORT" in capfd.readouterr().err


@pytest.mark.anyio
async def test_the_whole_command(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        command = [sys.executable, "-m", "proxy", "doctor", str(app.addresses[0]), "--topic", "orders"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert "  ok    endpoint    this is Gantry\n" in done.stdout
    assert re.search(r"\n\n\d+ ok, 0 to look at, 0 wrong\n$", done.stdout)
    assert done.returncode == 0

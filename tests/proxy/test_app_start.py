"""Failing starts of the process and the application."""

import asyncio
import gc
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.start_error import StartError
from proxy.__main__ import _ready
from proxy.app import App
from proxy.settings import naming
from proxy.settings.model import Settings
from tests.cluster.servers import HOST, ROOT, START_TIMEOUT
from tests.ports import free_port
from tests.proxy.replica import running

pytestmark = pytest.mark.anyio


async def test_start_fails_if_one_address_is_in_use(tmp_path: Path) -> None:
    """The first, open listener must not keep the process alive."""
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = f"{HOST}:{other.getsockname()[1]}"
        command = [sys.executable, "-m", "proxy", "serve", "--listen", f"{HOST}:0", "--listen", taken]
        command += ["--embedded", str(tmp_path / "broker"), "--admin", "off"]
        done = await asyncio.to_thread(
            lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        )
        assert done.returncode == 1
        assert f"cannot listen on {taken}: Address already in use" in done.stderr
        assert "Errno" not in done.stderr
        assert "Traceback" not in done.stderr
        app = App(Settings(listen=[f"{HOST}:0", taken], embedded={"directory": tmp_path}, admin={"listen": "off"}))
        with pytest.raises(OSError, match=f"cannot listen on {taken}"):
            await app.serve(lambda: None, asyncio.Event().wait)
        assert app.addresses == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"auth": {"users": "/absent/users.toml"}}, "auth.users: /absent/users.toml: No such file or directory"),
        ({"auth": {"plain_acl": "/absent/acl.yml"}}, "auth.plain_acl: /absent/acl.yml: No such file or directory"),
        ({"auth": {"audit": "/proc/absent/audit"}}, "auth.audit: /proc/absent: No such file or directory"),
        ({"admin": {"tokens": "/absent/tokens"}}, "admin.tokens: /absent/tokens: No such file or directory"),
        ({"rules": {"file": "/absent/rules.toml"}}, "rules.file: /absent/rules.toml: No such file or directory"),
    ],
)
async def test_a_start_without_a_file_names_its_setting(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    admin = {"listen": "off", **settings.get("admin", {})}
    values = {"listen": [f"{HOST}:0"], "embedded": {"directory": tmp_path}, **settings, "admin": admin}
    with pytest.raises((OSError, StartError)) as caught:
        await App(Settings(**values)).serve(lambda: None, asyncio.Event().wait)
    assert naming.reason(caught.value) == reason


@pytest.mark.parametrize("key", ["embedded.listen", "metrics_listen"])
async def test_a_start_on_a_taken_address_names_setting_and_address(tmp_path: Path, key: str) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = f"{HOST}:{other.getsockname()[1]}"
        values: dict[str, Any] = {"listen": [f"{HOST}:0"], "admin": {"listen": "off"}}
        values["embedded"] = {"directory": tmp_path, **({"listen": taken} if key == "embedded.listen" else {})}
        app = App(Settings(**values, metrics_listen=taken if key == "metrics_listen" else None))
        with pytest.raises(OSError, match=f"{key}: {taken}: ") as caught:
            await app.serve(lambda: None, asyncio.Event().wait)
    assert "Errno" not in naming.reason(caught.value)


async def test_start_without_name_servers_logs_the_missing_ones(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("freeze", "set_threshold"):
        monkeypatch.setattr(gc, name, lambda *_: None)
    closed = f"{HOST}:{free_port()}"
    caplog.set_level(logging.INFO, "gantry")
    async with running(
        Settings(listen=[f"{HOST}:0"], cluster={"namesrv": closed}, admin={"listen": "off"}, drain_timeout=0)
    ) as app:
        _ready(app)
    said = [record.getMessage() for record in caplog.records]
    assert "ready" not in said
    (reason,) = (text for text in said if text.startswith("serving, but not ready: "))
    assert f"name_servers: cannot be reached: {closed}" in reason
    assert "no broker is known" in reason


async def test_start_warns_of_advertised_names_that_do_not_resolve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listen = {
        "address": f"{HOST}:0",
        "advertise": "gantry-7f9c.invalid:8080",
        "advertise_rules": [
            {"networks": ["10.0.0.0/8"], "address": "inner.invalid"},
            {"networks": ["192.0.2.0/24"], "address": "192.0.2.7:80"},
            {"networks": ["127.0.0.0/8"], "address": "localhost"},
        ],
    }
    settings = Settings(listen=[listen], embedded={"directory": tmp_path}, admin={"listen": "off"}, drain_timeout=0)
    async with running(settings), asyncio.timeout(30):
        while caplog.text.count("does not resolve") < 2:
            await asyncio.sleep(0.02)
    warnings = sorted(text for text in caplog.messages if "does not resolve" in text)
    assert [text.partition(" does")[0] for text in warnings] == [
        "listen.advertise: gantry-7f9c.invalid",
        "listen.advertise_rules: inner.invalid",
    ]


def test_sighup_during_the_start_does_not_end_the_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["--listen", f"{HOST}:0", "--embedded", str(tmp_path / "broker"), "--admin", "off"]
    with (
        log.open("wb") as output,
        subprocess.Popen([sys.executable, "-m", "proxy", "serve", *words], cwd=ROOT, stderr=output) as gantry,
    ):
        _wait(lambda: _ignores_sighup(gantry.pid), log)
        assert log.read_text() == ""
        gantry.send_signal(signal.SIGHUP)
        _wait(lambda: "gantry: ready" in log.read_text() or gantry.poll() is not None, log)
        gantry.terminate()
        assert gantry.wait(60) == 0, log.read_text()


def _ignores_sighup(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGHUP - 1) & 1)


def _wait(check: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not check():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)

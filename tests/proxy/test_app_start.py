"""Failing starts of the process and the application."""

import asyncio
import gc
import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.__main__ import _ready
from proxy.app import App
from proxy.settings.model import Settings
from tests.cluster.servers import HOST, ROOT
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
        assert "Traceback" not in done.stderr
        app = App(Settings(listen=[f"{HOST}:0", taken], embedded={"directory": tmp_path}, admin={"listen": "off"}))
        with pytest.raises(OSError, match=f"cannot listen on {taken}"):
            await app.serve(lambda: None, asyncio.Event().wait)
        assert app.addresses == []


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

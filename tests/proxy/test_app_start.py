"""Failing starts of the process and the application."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.app import App
from proxy.settings.model import Settings
from tests.cluster.servers import HOST, ROOT

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

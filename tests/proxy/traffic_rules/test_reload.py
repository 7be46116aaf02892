"""The rules file changes while the replica runs."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from proxy.app import App
from proxy.settings.model import Settings
from proxy.traffic_rules.engine import Reload
from proxy.traffic_rules.model import RulesError
from remoting.codes import ResponseCode
from tests.cluster.client import Client
from tests.cluster.servers import Gantry
from tests.proxy.traffic_rules.kit import replica, send, until, write

pytestmark = pytest.mark.anyio

DENY = '[[rule]]\nname = "no-orders"\nkind = "deny"\nmatch.topics = ["orders"]\n'


async def test_a_changed_file_is_in_force_under_traffic(tmp_path: Path) -> None:
    async with replica(tmp_path, "", interval=0.02) as one, one.remoting() as client:
        assert one.app.core.gate is None
        answers: list[int] = []

        async def traffic() -> None:
            while True:
                answers.append((await send(client, "orders")).code)

        sending = asyncio.ensure_future(traffic())
        try:
            for text, code in ((DENY, ResponseCode.NO_PERMISSION), ("", ResponseCode.SUCCESS)) * 3:
                write(one.file, text)
                await until(lambda code=code: answers and answers[-1] == code, f"{code}")  # type: ignore[misc]
        finally:
            sending.cancel()
        assert set(answers) == {ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS}
        assert one.metric("gantry_rules_reloads_total", outcome="loaded") == 6


@pytest.mark.parametrize("bad", ["[[rule]]", "[[rule", None])
async def test_a_wrong_file_leaves_the_former_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    async with replica(tmp_path, DENY) as one, one.remoting() as client:
        if bad is None:
            one.file.unlink()
        else:
            write(one.file, bad)
        assert await one.app.rules.reload() is Reload.FAILED
        # Told once.
        assert await one.app.rules.reload() is Reload.UNCHANGED
        assert len([record for record in caplog.records if "is not usable" in record.message]) == 1
        assert (await send(client, "orders")).code == ResponseCode.NO_PERMISSION
        assert one.metric("gantry_rules_outdated") == 1
        write(one.file, "")
        assert await one.app.rules.reload() is Reload.LOADED
        assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        assert (one.metric("gantry_rules_outdated"), one.metric("gantry_rules")) == (0, 0)


async def test_a_wrong_file_is_no_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    write(file, "[[rule]]")
    with pytest.raises(RulesError, match=r"rules\.toml: rule no\. 1: kind has to be given"):
        App(Settings(rules={"file": file}))


async def test_what_rules_did_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with replica(tmp_path, DENY) as one, one.remoting() as client:
        for _ in range(5):
            await send(client, "orders", b"nothing to write down")
        with caplog.at_level(logging.WARNING, "gantry.rules"):
            one.app.rules.report()
            one.app.rules.report()
        (line,) = [record.getMessage() for record in caplog.records if "no-orders" in record.getMessage()]
        assert line.startswith("rule no-orders (deny): 5 since the last report, at last SEND_MESSAGE_V2 of ")
        assert "topic orders" in line


async def test_a_hangup_has_the_file_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    write(file, "")
    config = f"""
        embedded.directory = "{tmp_path / "store"}"
        rules.file = "{file}"
        rules.reload_interval = 3600
        admin.listen = "off"
    """
    with Gantry(tmp_path, "", config) as gantry:
        async with Client(gantry.address) as client:
            assert (await send(client, "orders")).code == ResponseCode.SUCCESS
            write(file, DENY)
            os.kill(gantry.pid, signal.SIGHUP)
            async with asyncio.timeout(30):
                while (await send(client, "orders")).code != ResponseCode.NO_PERMISSION:
                    await asyncio.sleep(0.02)

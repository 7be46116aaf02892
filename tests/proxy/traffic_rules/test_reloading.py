"""Reloading of the rules file while the replica runs."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from proxy.app import App
from proxy.settings.model import Settings
from proxy.traffic_rules.parsing import RulesError
from proxy.traffic_rules.reloading import ReloadOutcome
from remoting.codes import ResponseCode
from tests.cluster.client import Client
from tests.cluster.servers import Gantry
from tests.proxy.traffic_rules.replica import run_replica, send, until, write

pytestmark = pytest.mark.anyio

DENY = '[[rule]]\nname = "no-orders"\nkind = "deny"\nmatch.topics = ["orders"]\n'


async def test_changed_rules_take_effect_under_traffic(tmp_path: Path) -> None:
    async with run_replica(tmp_path, "", interval=0.02) as replica, replica.remoting() as client:
        assert replica.app.core.gate is None
        answers: list[int] = []

        async def traffic() -> None:
            while True:
                answers.append((await send(client, "orders")).code)

        sending = asyncio.ensure_future(traffic())
        try:
            for text, code in ((DENY, ResponseCode.NO_PERMISSION), ("", ResponseCode.SUCCESS)) * 3:
                write(replica.file, text)
                await until(lambda code=code: answers and answers[-1] == code, f"{code}")  # type: ignore[misc]
        finally:
            sending.cancel()
        assert set(answers) == {ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS}
        assert replica.metric("gantry_rules_reloads_total", outcome="loaded") == 6


@pytest.mark.parametrize("bad", ["[[rule]]", "[[rule", None])
async def test_an_invalid_file_leaves_the_former_rules_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        if bad is None:
            replica.file.unlink()
        else:
            write(replica.file, bad)
        assert await replica.app.rules.reload() is ReloadOutcome.FAILED
        # Reported only once.
        assert await replica.app.rules.reload() is ReloadOutcome.UNCHANGED
        assert len([record for record in caplog.records if "is invalid" in record.message]) == 1
        assert (await send(client, "orders")).code == ResponseCode.NO_PERMISSION
        assert replica.metric("gantry_rules_outdated") == 1
        write(replica.file, "")
        assert await replica.app.rules.reload() is ReloadOutcome.LOADED
        assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        assert (replica.metric("gantry_rules_outdated"), replica.metric("gantry_rules")) == (0, 0)


async def test_an_invalid_file_fails_the_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    write(file, "[[rule]]")
    with pytest.raises(RulesError, match=r"rules\.toml: rule no\. 1: kind: required"):
        App(Settings(rules={"file": file}))


async def test_rejections_are_logged_once_per_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        for _ in range(5):
            await send(client, "orders", b"x")
        with caplog.at_level(logging.WARNING, "gantry.rules"):
            replica.app.rules.report()
            replica.app.rules.report()
        (line,) = [record.getMessage() for record in caplog.records if "no-orders" in record.getMessage()]
        assert line.startswith(
            "rule no-orders (deny): 5 rejected or delayed since the last report, most recently SEND_MESSAGE_V2 from "
        )
        assert "topic orders" in line


async def test_sighup_reloads_the_file(tmp_path: Path) -> None:
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


async def test_rules_about_users_without_authentication_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = '[[rule]]\nname = "acme"\nkind = "namespace"\nnamespace = "acme"\nmatch.users = ["acme-*"]\n'
    async with run_replica(tmp_path, rule + DENY) as replica, replica.remoting() as client:
        messages = [record.message for record in caplog.records if "authentication is off" in record.message]
        assert messages == ["rules that match no request, because authentication is off: acme"]
        assert (await send(client, "orders")).code == ResponseCode.NO_PERMISSION

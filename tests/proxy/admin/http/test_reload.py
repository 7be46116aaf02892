"""POST /v1/config/reload."""

import logging
from pathlib import Path

import pytest

from proxy.settings.loading import Sources
from tests.cluster.client import Client
from tests.proxy.admin.http.replicas import replica

pytestmark = pytest.mark.anyio


async def test_reload_applies_the_settings_that_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gantry.toml"
    listen = 'listen = ["127.0.0.1:0"]\n'
    admin = '[admin]\nlisten = "127.0.0.1:0"\nwrite_token = "a-token-for-writers"\n'
    file.write_text(f"{listen}{admin}[limits]\nrequests = 10\n")
    monkeypatch.setenv("GANTRY_EMBEDDED__DIRECTORY", str(tmp_path / "data"))
    sources = Sources(file, {"log_level": "warning"})
    level = logging.root.level
    loaded = sources.load().model_dump(exclude={"replica"})
    try:
        async with replica(tmp_path / "data", sources, **loaded) as own:
            rows = {row["key"]: row for row in (await own.get("/v1/config"))["items"]}
            assert rows["limits.requests"]["origin"] == "file"
            assert rows["embedded.directory"]["origin"] == "env"
            assert rows["log_level"]["origin"] == "flag"
            assert rows["limits.buffer"]["origin"] == "default"
            file.write_text(f'replica = "r2"\n{listen}{admin}[limits]\nrequests = 20\n')
            tried = await own.post("/v1/config/reload", {"dry_run": True})
            changes = {change["key"]: change for change in tried["changes"]}
            assert changes["limits.requests"] == {
                "key": "limits.requests",
                "old": 10,
                "new": 20,
                "origin": "file",
                "effect": "would apply",
            }
            assert changes["replica"]["effect"] == "needs a restart"
            assert own.app.settings.limits.requests == 10
            done = await own.post("/v1/config/reload")
            assert {change["key"]: change["effect"] for change in done["changes"]}["limits.requests"] == "applied"
            async with Client(own.address) as client:
                await client.heartbeat({})
                (channel,) = own.app.channels
                assert channel.limits.requests == 20
            file.write_text(f"{listen}{admin}[limits]\nrequests = 0\nfoo = 1\n")
            answer = await own.write.post("/v1/config/reload")
            assert answer.status_code == 409
            assert [fault["detail"] for fault in answer.json()["faults"]] == [
                "limits.requests: Input should be greater than 0",
                "limits.foo: there is no such setting",
            ]
            assert own.app.settings.limits.requests == 20
    finally:
        logging.root.setLevel(level)


async def test_reload_applies_the_log_level(tmp_path: Path) -> None:
    file = tmp_path / "gantry.toml"
    file.write_text('log_level = "info"\n')
    flags = {"embedded": {"directory": str(tmp_path / "data")}}
    level = logging.root.level
    try:
        async with replica(tmp_path / "data", Sources(file, flags)) as own:
            file.write_text('log_level = "error"\n')
            await own.post("/v1/config/reload")
            assert logging.root.level == logging.ERROR
    finally:
        logging.root.setLevel(level)

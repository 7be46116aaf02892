"""Reload: a setting that is reported as applied has an effect."""

from pathlib import Path

import pytest

from proxy.app import App
from proxy.operations.configuration import Configuration
from proxy.settings.loading import Sources
from tests.proxy.replica import running

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _sources(directory: Path, **more: object) -> Sources:
    own = {"listen": ["127.0.0.1:0"], "admin": {"listen": "off"}, "embedded": {"directory": directory / "broker"}}
    return Sources(directory / "gantry.toml", {**own, **more})


async def _reload(app: App, sources: Sources, content: str) -> dict[str, str]:
    """Reload from a file with this content; return the effect by key."""
    assert sources.file is not None
    sources.file.write_text(content)
    changes = await Configuration(app, sources, {}).reload(dry_run=False)
    return {change.key: change.effect for change in changes}


async def test_limit_of_unread_responses_changes_for_grpc_clients(tmp_path: Path) -> None:
    sources = _sources(tmp_path)
    (tmp_path / "gantry.toml").touch()
    async with running(sources.load()) as app:
        assert await _reload(app, sources, "[limits]\nunread = 1000") == {"limits.unread": "applied"}
        assert app.grpc.gateway.unread_limit == 1000


async def test_bounds_at_brokers_need_a_restart(tmp_path: Path) -> None:
    """They are created at the start, with their metrics."""
    sources = _sources(tmp_path)
    (tmp_path / "gantry.toml").touch()
    async with running(sources.load()) as app:
        effects = await _reload(app, sources, "[limits]\nbroker_window = 0\nbroker_polls = 5")
        assert effects == dict.fromkeys(("limits.broker_window", "limits.broker_polls"), "needs a restart")
        assert app.settings.limits.broker_window == 16
        listed = {setting.key: setting.run_time for setting in Configuration(app, sources, {}).settings()}
        assert (listed["limits.broker_window"], listed["limits.broker_polls"]) == (False, False)


@pytest.mark.parametrize(("workers", "effect"), [(1, "applied"), (2, "needs a restart")])
async def test_drain_times_of_several_workers_need_a_restart(tmp_path: Path, workers: int, effect: str) -> None:
    """The supervisor, which kills workers that take longer, keeps those of the start."""
    sources = _sources(tmp_path)
    (tmp_path / "gantry.toml").touch()
    async with running(sources.load()) as app:
        app.settings = app.settings.model_copy(update={"workers": workers})
        content = f"workers = {workers}\ndrain_delay = 0.01\ndrain_timeout = 0.02"
        effects = await _reload(app, sources, content)
        assert effects == dict.fromkeys(("drain_delay", "drain_timeout"), effect)

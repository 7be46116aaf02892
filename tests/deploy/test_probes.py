"""The probes of the Deployment and the image's health check, asked of replicas that are full or drain."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
import yaml

from proxy.app import App
from proxy.settings.model import Settings
from tests.deploy.drain_delay import DELAY
from tests.deploy.files import DEPLOY
from tests.proxy.replica import Client, ask_route, running, stops
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("delayed")]

CONNECTIONS = 2


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """Run a replica that callers without a credential may ask for nothing but health, as those on other hosts may."""
    settings = Settings(
        listen=[{"address": "127.0.0.1:0", "max_connections": CONNECTIONS}],
        embedded={"directory": tmp_path, "sync": "os"},
        admin={"listen": "127.0.0.1:0", "local": "none"},
        drain_delay=DELAY,
        drain_timeout=0.2,
    )
    async with running(settings) as app:
        yield app


async def probe(app: App) -> dict[str, int]:
    """Return the status that each probe of the Deployment gets, on a connection of its own as the kubelet's; 0: no
    answer.
    """
    deployment = yaml.safe_load((DEPLOY / "kubernetes" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert app.admin.url is not None
    places = {"access": f"http://{app.addresses[0]}" if app.addresses else "", "admin": app.admin.url}
    return {
        name: await _status(places[container[f"{name}Probe"]["httpGet"]["port"]], container[f"{name}Probe"])
        for name in ("startup", "liveness", "readiness")
    }


async def _status(place: str, probe: dict[str, Any]) -> int:
    async with httpx.AsyncClient(base_url=place, timeout=30) as client:
        try:
            return (await client.get(probe["httpGet"]["path"])).status_code
        except httpx.TransportError:
            return 0


async def check_health(app: App) -> int:
    """Return the exit status of the image's health check, at this replica's ports."""
    check = re.search(r"^HEALTHCHECK [^\[]*(\[.*\])$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert check is not None
    assert app.admin.url is not None
    words = [
        word.replace("http://127.0.0.1:8080", f"http://{app.addresses[0]}").replace(
            "http://127.0.0.1:8090", app.admin.url.rstrip("/")
        )
        for word in json.loads(check[1])
    ]
    command = [sys.executable, *words[1:]]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, check=False))
    return done.returncode


WORKS = {"startup": 200, "liveness": 200, "readiness": 200}


async def test_probes_are_answered_while_the_clients_port_is_full(app: App, delayed: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = await Client.connect(app)
            stack.push_async_callback(client.close)
            await client.ask(ask_route())
        async with httpx.AsyncClient(base_url=f"http://{app.addresses[0]}", timeout=30) as another:
            with pytest.raises(httpx.TransportError):
                await another.get("/livez")
        assert await probe(app) == WORKS
        assert await check_health(app) == 0
    delayed.set()


async def test_a_draining_replica_is_alive_and_not_ready(app: App, delayed: asyncio.Event) -> None:
    assert await probe(app) == WORKS
    stops[app].set()
    await until(lambda: app.core.drain.announced)
    assert await probe(app) == {**WORKS, "readiness": 503}
    assert await check_health(app) == 0
    delayed.set()

"""Official clients, without Java, against a process of `gantry serve --embedded`.

They run concurrently, each with a separate topic and group, because most of their time they wait.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.servers import HOST, Gantry, run_client
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.external, pytest.mark.timeout(600)]

_CLIENTS = (("python-grpc", "simple"), ("go-grpc", "push"), ("go-remoting", "push"), ("go-remoting", "pull"))
_KINDS = ("normal", "fifo", "delay", "transaction")
_TRIPS = [(client, mode, kind) for (client, mode), kind in product(_CLIENTS, _KINDS)]
_AT_ONCE = 6

Report = dict[str, Any]


@pytest.fixture(scope="module")
def broker() -> str:
    """Address of the embedded broker's listener."""
    return f"{HOST}:{free_port()}"


@pytest.fixture(scope="module")
def gantry(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    directory = tmp_path_factory.mktemp("embedded")
    config = f"""
        [embedded]
        directory = "{directory / "store"}"
        listen = "{broker}"
    """
    with Gantry(directory, "", config) as gantry:
        yield gantry


@pytest.fixture(scope="module")
def reports(gantry: Gantry, broker: str) -> Iterator[dict[tuple[str, str, str], Future[Report]]]:
    """The results of all round trips."""

    def round_trip(client: str, mode: str, kind: str) -> Report:
        topic = asyncio.run(create_topic(broker, "t", 4, kind.upper()))
        words = ("--endpoint", gantry.address, "--topic", topic, "--group", unique("g"), "--kind", kind, "--mode", mode)
        return run_client(client, "roundtrip", "10", *words)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {trip: pool.submit(round_trip, *trip) for trip in _TRIPS}


@pytest.mark.parametrize(("client", "mode", "kind"), _TRIPS)
def test_official_client_receives_its_messages(
    reports: dict[tuple[str, str, str], Future[Report]], client: str, mode: str, kind: str
) -> None:
    report = reports[client, mode, kind].result()
    assert report["ok"], report


async def test_messages_cross_the_protocols(gantry: Gantry, broker: str) -> None:
    topic = await create_topic(broker, "t", 4)
    words = ("--endpoint", gantry.address, "--topic", topic, "--group", unique("g"), "--run", unique("run"))
    assert run_client("go-remoting", "produce", "10", *words)["ok"]
    assert run_client("python-grpc", "consume", "10", *words, "--mode", "simple")["ok"]


async def test_messages_and_offsets_survive_kill_9(tmp_path: Path) -> None:
    config = f'embedded.directory = "{tmp_path / "store"}"'
    with Gantry(tmp_path, "", config) as gantry:
        words = ("--endpoint", gantry.address, "--topic", "t", "--group", unique("g"), "--run", unique("run"))
        assert run_client("go-remoting", "produce", "10", *words)["ok"]
        gantry.kill()
        gantry.start()
        assert run_client("python-grpc", "consume", "10", *words, "--mode", "simple")["ok"]

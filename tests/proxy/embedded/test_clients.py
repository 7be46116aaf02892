"""Official clients against `gantry serve --embedded`, a process of its own; no Java."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.kit import HOST, Gantry, free_port, run_client

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def broker() -> str:
    """Where the embedded broker itself listens."""
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


@pytest.mark.parametrize("kind", ["normal", "fifo", "delay", "transaction"])
@pytest.mark.parametrize(
    ("client", "mode"),
    [("python-grpc", "simple"), ("go-grpc", "push"), ("go-remoting", "push"), ("go-remoting", "pull")],
)
async def test_round_trip(gantry: Gantry, broker: str, client: str, mode: str, kind: str) -> None:
    topic = await create_topic(broker, "t", 4, kind.upper())
    words = ("--endpoint", gantry.address, "--topic", topic, "--group", unique("g"), "--kind", kind, "--mode", mode)
    report = run_client(client, "roundtrip", "10", *words)
    assert report["ok"], report


async def test_across_the_protocols(gantry: Gantry, broker: str) -> None:
    topic = await create_topic(broker, "t", 4)
    words = ("--endpoint", gantry.address, "--topic", topic, "--group", unique("g"), "--run", unique("run"))
    assert run_client("go-remoting", "produce", "10", *words)["ok"]
    assert run_client("python-grpc", "consume", "10", *words, "--mode", "simple")["ok"]


async def test_the_same_after_kill_9(tmp_path: Path) -> None:
    config = f'embedded.directory = "{tmp_path / "store"}"'
    with Gantry(tmp_path, "", config) as gantry:
        words = ("--endpoint", gantry.address, "--topic", "t", "--group", unique("g"), "--run", unique("run"))
        assert run_client("go-remoting", "produce", "10", *words)["ok"]
        gantry.kill()
        gantry.start()
        assert run_client("python-grpc", "consume", "10", *words, "--mode", "simple")["ok"]

"""2,000 clients that make the server hold as much memory as each of them may, with a good client beside them."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import Observation, observed, send_fields
from tests.attacks.replicas import Baseline, deployed, wait_until_ready
from tests.benchmark.processes import PAGE, tree
from tests.cluster.client import Client, unique, wait_until
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_MIB = 2**20
_CEILING = 512


async def _fill(address: str) -> str:
    """Store 32 messages of 128 KiB, which one pull returns; return their topic."""
    topic = unique("hogged")
    async with Client(address, unique("filler")) as client:

        async def sent(name: str, body: bytes) -> bool:
            reply = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(name), body)
            return reply.code == ResponseCode.SUCCESS

        for _ in range(32):
            await wait_until(lambda: sent(topic, bytes(128 * 1024)), "a message is stored")
        await wait_until(lambda: sent("parked", b"x"), "the topic exists")
    return topic


@contextmanager
def _hogs(port: int, topic: str, connections: int) -> Iterator[None]:
    """Run the attackers as a process of their own, until they have connected and have had time to send."""
    command = [sys.executable, "-m", "tests.attacks.memory_hogs", str(port), topic, "--connections", str(connections)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield
        finally:
            process.kill()


async def _attack(gantry: Gantry, topic: str, connections: int, seconds: float) -> tuple[Observation, float]:
    """Attack; return the good client's observation and the peak of the server's memory in MiB."""
    peak = 0.0
    async with observed(gantry.address, gantry.pid, unique("good")) as observation:
        with _hogs(gantry.port, topic, connections):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                peak = max(peak, _memory(gantry.pid))
                await asyncio.sleep(0.02)
    return observation, peak


def _memory(pid: int) -> float:
    """Return the memory of the process and its descendants in MiB, as a container counts it: shared pages once."""
    anonymous, shared = 0, 0
    for member in tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{member}/statm").read_text().split()
            anonymous += int(fields[1]) - int(fields[2])
            shared = max(shared, int(fields[2]))
    return (anonymous + shared) * PAGE / _MIB


def _ceiling(deployment: Deployment) -> str:
    return f"memory = {_CEILING * _MIB}\n"


@pytest.mark.complete
@pytest.mark.timeout(240)
async def test_2000_connections_stay_below_the_ceiling(tmp_path: Path, deployment: Deployment, namesrv: str) -> None:
    """Frames and gRPC messages that never end, unread responses of 4 MiB, long polls with bodies of 60 KiB."""
    with deployed(deployment, tmp_path, namesrv, limits=_ceiling(deployment)) as gantry:
        wait_until_ready(gantry, deployment)
        topic = await _fill(gantry.address)
        baseline = Baseline(gantry.pid)
        observation, peak = await _attack(gantry, topic, 2000, 30.0)
        assert peak < _CEILING
        assert "closing" in gantry.log.read_text()
        # The attackers are one process, which takes a core from the server.
        observation.check(growth=_CEILING, stall=2.0)
        baseline.wait_for_release()


@pytest.mark.timeout(120)
async def test_connections_that_hold_much_stay_below_the_ceiling(tmp_path: Path) -> None:
    """The same with 100 connections and a ceiling of 192 MiB."""
    with deployed(Deployment.EMBEDDED, tmp_path, limits=f"memory = {192 * _MIB}\n") as gantry:
        wait_until_ready(gantry, Deployment.EMBEDDED)
        topic = await _fill(gantry.address)
        baseline = Baseline(gantry.pid)
        observation, peak = await _attack(gantry, topic, 100, 5.0)
        assert peak < 192
        observation.check(growth=192)
        baseline.wait_for_release()

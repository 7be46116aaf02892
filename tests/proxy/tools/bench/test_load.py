"""The load generator's schedule and counts, with connections that answer in memory."""

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.tools.bench.drivers import Delivery, Driver, Fault
from proxy.tools.bench.load import Load, Result

pytestmark = pytest.mark.anyio


class _Server:
    """Keeps messages in memory. stall: seconds of the first answer; faults: number of sends that fail."""

    sources = ("broker-a",)

    def __init__(self, stall: float = 0.0, faults: int = 0, loses: bool = False) -> None:
        self.messages: deque[Delivery] = deque()
        self._stall, self._faults, self._loses = stall, faults, loses
        self._open: asyncio.Event | None = None

    @asynccontextmanager
    async def connect(self, _: argparse.Namespace, role: str) -> AsyncIterator[Driver]:
        yield self

    async def send(self, body: bytes, stamp: str, turn: int) -> None:
        if self._open is None:
            self._open = asyncio.Event()
            asyncio.get_running_loop().call_later(self._stall, self._open.set)
        await self._open.wait()
        if self._faults:
            self._faults -= 1
            raise Fault("busy")
        if not self._loses:
            self.messages.append(Delivery(stamp, len(body), None))

    async def receive(self, source: str, wait: float) -> list[Delivery]:
        if not self.messages:
            await asyncio.sleep(min(wait, 0.01))
        return [self.messages.popleft() for _ in range(min(32, len(self.messages)))]

    async def acknowledge(self, source: str, delivery: Delivery) -> None:
        await asyncio.sleep(0)


async def _run(server: _Server, action: str, rate: float | None = 200.0, warmup: float = 0.0) -> Result:
    options = argparse.Namespace(
        action=action, rate=rate, clients=2, in_flight=4, duration=1.0, warmup=warmup, topic="t", group="g"
    )
    return await Load(options, server.connect, b"x" * 10).run(lambda _: None)


async def test_open_load_charges_a_stall_to_all_messages_due_meanwhile() -> None:
    result = await _run(_Server(stall=0.5), "send")
    # 100 of the 200 messages were due during the stall, and half of them waited for more than a quarter of a second.
    assert result.sent.messages == 200
    assert result.sent.latency.percentile(75) > 200_000
    assert result.sent.latency.highest >= 490_000


async def test_messages_of_the_warmup_are_not_measured() -> None:
    result = await _run(_Server(), "both", warmup=0.5)
    assert (result.sent.messages, result.received.messages) == (200, 200)
    assert 200 <= result.acknowledged.messages < 300
    assert (result.all_sent, result.all_received) == (300, 300)
    assert result.sent.bytes == 2000


async def test_messages_before_the_run_are_received_and_not_counted() -> None:
    server = _Server()
    server.messages.extend(Delivery("", 5, None) for _ in range(100))
    result = await _run(server, "both")
    assert (result.all_received, result.received.messages) == (200, 200)
    assert len(result.received.latency) == 200


async def test_lost_messages_are_missing() -> None:
    result = await _run(_Server(loses=True), "both")
    assert (result.all_sent, result.all_received) == (200, 0)


async def test_faults_are_counted_by_text() -> None:
    result = await _run(_Server(faults=3), "send")
    assert result.sent.errors == {"busy": 3}
    assert result.sent.messages == 197


async def test_without_a_rate_each_client_keeps_its_sends_in_flight() -> None:
    result = await _run(_Server(), "send", rate=None)
    assert result.sent.messages > 1000

"""Many and abandoned requests of the API."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.admin.http.replicas import Replica, replica

pytestmark = pytest.mark.anyio

_REQUESTS = 80
# Seconds of CPU time of a step.
_STEP = 0.004


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(tmp_path) as running:
        yield running


async def _ask(served: Replica) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request messages over a new connection."""
    reader, writer = await asyncio.open_connection(served.read.base_url.host, served.read.base_url.port)
    writer.write(b"GET /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return reader, writer


async def test_many_requests_take_a_short_time_of_each_turn_of_the_event_loop(
    served: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0
    longest = 0.0

    async def route(topic: str) -> Any:
        nonlocal begun
        begun += 1
        while begun < _REQUESTS:
            await asyncio.sleep(0.01)
        for _ in range(3):
            end = time.thread_time() + _STEP
            while time.thread_time() < end:
                pass
            await asyncio.sleep(0)
        raise TimeoutError

    async def watch() -> None:
        nonlocal longest
        while True:
            start = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - start)

    monkeypatch.setattr(served.app.core.backend, "route", route)
    connections = [await _ask(served) for _ in range(_REQUESTS)]
    async with asyncio.timeout(60):
        while begun < _REQUESTS:
            await asyncio.sleep(0)
        watching = asyncio.ensure_future(watch())
        answers = await asyncio.gather(*(reader.read() for reader, _ in connections))
    watching.cancel()
    assert all(b" 504 " in answer.partition(b"\r\n")[0] for answer in answers), answers[0]
    for _, writer in connections:
        writer.close()
    # All of them at once take 320 ms.
    assert longest < 0.16


async def test_read_ends_with_its_connection(
    served: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def route(topic: str) -> Any:
        begun.set()
        try:
            while True:
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(served.app.core.backend, "route", route)
    _, writer = await _ask(served)
    async with asyncio.timeout(30):
        await begun.wait()
        writer.close()
        await ended.wait()
        await served.get("/v1/version")
    assert "Exception in ASGI application" not in caplog.text

import asyncio

import anyio
import pytest

from tests.deploy.drain_delay import DELAY


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that ends the drain's delay of DELAY: the time of checks on a slow machine does not matter."""
    over, sleep = asyncio.Event(), anyio.sleep

    async def delay(seconds: float) -> None:
        await (over.wait() if seconds == DELAY else sleep(seconds))

    monkeypatch.setattr(anyio, "sleep", delay)
    return over

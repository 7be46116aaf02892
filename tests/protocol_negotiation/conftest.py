import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from protocol_negotiation.tls import TlsSource
from tests.protocol_negotiation.kit import Authority, Run

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on either loop; what the loop's exception handler was told fails the test."""
    complaints: list[dict[str, Any]] = []

    async def watched(coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await coroutine

    def runs(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(watched(coroutine))
        assert complaints == []

    return runs


@pytest.fixture(scope="session")
def shared_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def shared_source(shared_authority: Authority) -> TlsSource:
    return TlsSource(shared_authority.files())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)

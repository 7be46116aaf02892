import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from protocol_negotiation.tls import TlsSource
from tests.protocol_negotiation.authority import (
    Authority,
)
from tests.protocol_negotiation.servers import (
    Run,
)

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a coroutine on either loop and fails if the loop's exception handler was called."""
    errors: list[dict[str, Any]] = []

    async def with_exception_handler(coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await coroutine

    def runs(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(with_exception_handler(coroutine))
        assert errors == []

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

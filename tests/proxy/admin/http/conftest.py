from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.proxy.admin.http.replicas import Stage, stage


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One event loop for all tests of a module, which share a replica."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def served(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A replica with clients, for tests that do not change it."""
    async with stage(tmp_path_factory.mktemp("embedded")) as shared:
        yield shared

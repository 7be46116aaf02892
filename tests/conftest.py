from typing import Any

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Coroutine tests run on asyncio only: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}

"""One event loop for all tests of a package, for packages that use grpc.aio."""

from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
async def event_loop_of_all_tests(anyio_backend: str | tuple[str, dict[str, Any]]) -> None:
    """Keep one event loop for all tests: grpc.aio may deliver a late event to the loop of an earlier test.

    A coroutine fixture keeps the event loop of its scope open.
    """

"""Log levels that change at run time."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from proxy.operations.log_levels import LogLevels

pytestmark = pytest.mark.anyio


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("gantry.admin.test")
    logger.setLevel(logging.WARNING)
    yield logger
    logger.setLevel(logging.NOTSET)


async def test_level_is_reset_after_its_time(logger: logging.Logger) -> None:
    levels = LogLevels()
    levels.set(logger.name, "error", None)
    # The second change does not make the first one the level to restore.
    levels.set(logger.name, "debug", 0.01)
    assert logger.level == logging.DEBUG
    assert levels.get(logger.name).changed
    async with asyncio.timeout(30):
        while levels.get(logger.name).changed:
            await asyncio.sleep(0.005)
    assert logger.level == logging.WARNING


async def test_close_resets_every_level(logger: logging.Logger) -> None:
    levels = LogLevels()
    levels.set(logger.name, "debug", 600)
    levels.close()
    assert logger.level == logging.WARNING

"""Two rounds of kill -9 of a whole broker; `make crash` does fifty."""

from pathlib import Path

import pytest

from tests.proxy.embedded import kill

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    acknowledged = await kill.run(2, tmp_path, seed=5)
    assert acknowledged.something_of_all, acknowledged.answers

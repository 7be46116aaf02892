import pytest

from tests.proxy.embedded.bench import Bench


@pytest.fixture
async def bench() -> Bench:
    return Bench()

from collections.abc import AsyncIterator

import pytest

from tests.proxy.backends.cluster.servers import Cluster, running


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as cluster:
        yield cluster

from collections.abc import Iterator

import pytest

from tests.cluster.kit import Cluster, started
from tests.cluster.reports import add_logs


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and two name servers; a test that kills one of them starts it again."""
    with started(tmp_path_factory, "pair", "--fast-timers", "--second-broker", "--second-namesrv") as cluster:
        yield cluster


pytest_runtest_makereport = add_logs

from collections.abc import Iterator

import pytest

from tests.cluster.reports import add_logs, show_figures
from tests.cluster.servers import Cluster, started

# Brokers register at name servers every 30 s by default; 10 s is the minimum.
OPTIONS = (
    *("--fast-timers", "--second-broker", "--second-namesrv"),
    *("--broker-set", "registerNameServerPeriod=10000"),
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and two name servers; a test that kills one of them restarts it."""
    with started(tmp_path_factory, "pair", *OPTIONS) as cluster:
        yield cluster


pytest_runtest_makereport = add_logs
pytest_terminal_summary = show_figures

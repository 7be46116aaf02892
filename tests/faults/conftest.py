from collections.abc import Iterator

import pytest

from tests.cluster.reports import add_logs, show_figures
from tests.cluster.servers import Cluster, started

# Brokers tell name servers of themselves every 30 s; every 10 s is as often as they can.
OPTIONS = (
    *("--fast-timers", "--second-broker", "--second-namesrv"),
    *("--broker-set", "registerNameServerPeriod=10000"),
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and two name servers; a test that kills one of them starts it again."""
    with started(tmp_path_factory, "pair", *OPTIONS) as cluster:
        yield cluster


pytest_runtest_makereport = add_logs
pytest_terminal_summary = show_figures

from collections.abc import Iterator

import pytest

from tests import event_loop
from tests.cluster.reports import add_logs, show_figures
from tests.cluster.servers import Cluster, started

# Brokers register at name servers every 30 s by default; 10 s is the minimum.
OPTIONS = (
    *("--quick", "--fast-timers", "--second-broker", "--second-namesrv"),
    *("--broker-set", "registerNameServerPeriod=10000"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the scenarios of `make faults` and `make soak` only, unless the command line names their folder."""
    if not any("tests/faults" in argument for argument in config.args):
        left_out = [item for item in items if item.get_closest_marker("fleet")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and two name servers; a test that kills one of them restarts it."""
    with started(tmp_path_factory, "pair", *OPTIONS) as cluster:
        yield cluster


event_loop_of_all_tests = event_loop.event_loop_of_all_tests
pytest_runtest_makereport = add_logs
pytest_terminal_summary = show_figures

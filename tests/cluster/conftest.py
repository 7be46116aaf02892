from collections.abc import Iterator

import pytest

from tests.cluster.reports import add_logs
from tests.cluster.servers import Cluster, Gantry, started

# Off by default are recalling, telling clients of a reset instead of keeping it in the broker, and ordered topics.
OPTIONS = (
    "--fast-timers",
    *("--namesrv-set", "orderMessageEnable=true"),
    *("--broker-set", "recallMessageEnable=true"),
    *("--broker-set", "useServerSideResetOffset=false"),
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker that checks transactions after seconds."""
    with started(tmp_path_factory, "cluster", *OPTIONS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gantry(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), cluster.namesrv, 'tools = "all"\n') as gantry:
        yield gantry


@pytest.fixture(scope="session")
def replica(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A second replica before the same cluster."""
    with Gantry(tmp_path_factory.mktemp("replica"), cluster.namesrv) as gantry:
        yield gantry


pytest_runtest_makereport = add_logs

"""The scenarios of tests/cluster on the embedded broker: the same tests, which must agree with the real cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.reports import add_logs
from tests.cluster.servers import Gantry
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster, InProcess


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", params=["in-process", "socket"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Name server and broker on one socket, and perhaps a Gantry in the same process."""
    directory = tmp_path_factory.mktemp("embedded")
    with EmbeddedCluster(directory, durable=True, proxy=request.param == "in-process") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gantry(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry | InProcess]:
    """What clients connect to: in the broker's process, or over the cluster backend."""
    if cluster.proxy is not None:
        yield cluster.proxy
        return
    with Gantry(tmp_path_factory.mktemp("gantry"), cluster.namesrv, 'tools = "all"\n') as gantry:
        yield gantry


@pytest.fixture(scope="session")
def replica(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A second replica before the same broker."""
    with Gantry(tmp_path_factory.mktemp("replica"), cluster.namesrv) as gantry:
        yield gantry


pytest_runtest_makereport = add_logs

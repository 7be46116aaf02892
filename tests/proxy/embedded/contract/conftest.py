"""The scenarios of tests/cluster on the embedded broker: the same tests, which must agree with the real cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.kit import Gantry
from tests.cluster.reports import add_logs
from tests.proxy.embedded.kit import EmbeddedCluster


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Name server and broker on one socket."""
    with EmbeddedCluster(tmp_path_factory.mktemp("embedded")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gantry(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), cluster.namesrv) as gantry:
        yield gantry


@pytest.fixture(scope="session")
def replica(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A second replica before the same broker."""
    with Gantry(tmp_path_factory.mktemp("replica"), cluster.namesrv) as gantry:
        yield gantry


pytest_runtest_makereport = add_logs

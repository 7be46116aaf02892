import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.kit import Cluster, Gantry
from tests.cluster.reports import add_logs

# Off by default are recalling, and telling clients of a reset instead of keeping it in the broker.
OPTIONS = (
    "--fast-timers",
    *("--broker-set", "recallMessageEnable=true"),
    *("--broker-set", "useServerSideResetOffset=false"),
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker that checks transactions after seconds.

    While writing tests: start them once with the same options and give their directory in TEST_PEERS.
    """
    if "TEST_PEERS" in os.environ:
        yield Cluster(Path(os.environ["TEST_PEERS"])).adopt()
        return
    with Cluster(tmp_path_factory.mktemp("peers"), *OPTIONS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gantry(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), cluster.namesrv) as gantry:
        yield gantry


@pytest.fixture(scope="session")
def replica(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A second replica before the same cluster."""
    with Gantry(tmp_path_factory.mktemp("replica"), cluster.namesrv) as gantry:
        yield gantry


pytest_runtest_makereport = add_logs

from collections.abc import Generator, Iterator

import pytest

from tests import event_loop
from tests.cluster import coverage
from tests.cluster.backends import Backend, backends_of, parameters
from tests.cluster.reports import add_logs, show_figures
from tests.cluster.servers import Cluster, Gantry, started
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster, InProcess

# Not RocketMQ's defaults: recalls, resets that the clients apply instead of the broker, and ordered topics.
OPTIONS = (
    *("--quick", "--fast-timers"),
    *("--namesrv-set", "orderMessageEnable=true"),
    *("--broker-set", "recallMessageEnable=true"),
    *("--broker-set", "useServerSideResetOffset=false"),
)
# Of the replicas. A broker needs long for thousands of messages on a busy machine.
_CONFIG = """
tools = "all"
[cluster]
request_timeout = 30
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        backends = backends_of(metafunc.definition.get_closest_marker("backends"))
        metafunc.parametrize("backend", parameters(backends), indirect=True, scope="session")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """The backend that the test runs on."""
    return Backend(request.param)


@pytest.fixture(scope="package")
def cluster(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | EmbeddedCluster]:
    """Name server and broker; transactions are checked after seconds."""
    if backend is Backend.CLUSTER:
        with started(tmp_path_factory, "cluster", *OPTIONS) as cluster:
            yield cluster
    else:
        directory = tmp_path_factory.mktemp("embedded")
        with EmbeddedCluster(directory, durable=True, proxy=backend is Backend.IN_PROCESS) as embedded:
            yield embedded


@pytest.fixture(scope="package")
def gantry(
    cluster: Cluster | EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gantry | InProcess]:
    """The replica that clients connect to: in the embedded broker's process, or in front of name server and broker."""
    if isinstance(cluster, EmbeddedCluster) and cluster.proxy is not None:
        yield cluster.proxy
        return
    with Gantry(tmp_path_factory.mktemp("gantry"), cluster.namesrv, _CONFIG) as gantry:
        yield gantry


@pytest.fixture(scope="package")
def replica(cluster: Cluster | EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A second replica in front of the same name server and broker."""
    with Gantry(tmp_path_factory.mktemp("replica"), cluster.namesrv, _CONFIG) as gantry:
        yield gantry


def pytest_runtest_setup() -> None:
    coverage.forget()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    if missing := sorted(coverage.missing(pyfuncitem)):
        pytest.fail(f"covered, but not sent through Gantry: {', '.join(missing)}")
    return result


event_loop_of_all_tests = event_loop.event_loop_of_all_tests
pytest_runtest_makereport = add_logs
pytest_terminal_summary = show_figures

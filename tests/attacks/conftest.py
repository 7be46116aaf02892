"""The attacked server and the attacker's connection."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks import figures
from tests.attacks.attack_limits import EMPTY_CALL, MIB
from tests.attacks.deployments import Deployment, selected
from tests.attacks.raw_client import Client
from tests.attacks.replicas import Baseline, deployed, wait_until_ready
from tests.cluster.servers import Gantry, started
from tests.conformance.server_process import Server, serving


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "deployment" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("deployments")
        possible = marker.args if marker else Deployment
        metafunc.parametrize("deployment", [name for name in selected() if name in possible], scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the attacks of `make attacks` only, unless it runs."""
    if "ATTACKS_COMPLETE" not in os.environ:
        left_out = [item for item in items if item.get_closest_marker("complete")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def attack_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Attach the measurements to the test's report."""
    deployment = request.node.callspec.params.get("deployment") if hasattr(request.node, "callspec") else None
    transport = {"server", "client"} & set(request.fixturenames)
    figures.reset(str(deployment or ("transport" if transport else Deployment.EMBEDDED)))
    yield
    request.node.user_properties.extend(figures.current.properties())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield Gantry's listener with its own gRPC transport, after 1000 calls.

    Messages are limited to 8 MiB, so that one of them fits the limit of memory growth; other limits are the defaults.
    """
    with serving("inprocess", tmp_path_factory.mktemp("attacks"), max_message=8 * MIB) as server:
        with Client(server.plain) as client:
            for stream in range(1, 2000, 2):
                client.send(client.call(stream, EMPTY_CALL, b""))
                assert client.response(stream).grpc_status == 0
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Yield the attacker's connection."""
    with Client(server.plain) as client:
        yield client


@pytest.fixture(scope="session")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real cluster's name server; an empty one if no deployment needs it."""
    if Deployment.CLUSTER in selected():
        with started(tmp_path_factory, "attacked", "--quick") as cluster:
            yield cluster.namesrv
    else:
        yield ""


@pytest.fixture
def replica(tmp_path: Path, deployment: Deployment, namesrv: str) -> Iterator[Gantry]:
    """Run Gantry with default limits; after the attack, wait until it has released memory and connections."""
    with deployed(deployment, tmp_path, namesrv) as gantry:
        wait_until_ready(gantry, deployment)
        baseline = Baseline(gantry.pid)
        yield gantry
        baseline.wait_for_release()

"""The attacked server and the attacker's connection."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.attack_limits import EMPTY_CALL, MIB
from tests.attacks.raw_client import Client
from tests.cluster.servers import Gantry
from tests.conformance.server_process import Server, serving


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


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Gantry]:
    """Run Gantry on an embedded broker, as a process, with default limits."""
    directory = tmp_path / "broker"
    with Gantry(
        tmp_path, "", f'drain_timeout = 0.5\n[embedded]\ndirectory = "{directory}"\n[admin]\nlisten = "off"\n'
    ) as gantry:
        yield gantry

from collections.abc import Iterator

import pytest

from tests.attacks.raw import Client
from tests.attacks.siege import EMPTY_CALL, MIB
from tests.conformance.process import Server, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Gantry's listener with our transport behind it, warm.

    Messages of 8 MiB, as one alone may cost what is allowed; every other bound is the default.
    """
    with serving("inprocess", tmp_path_factory.mktemp("attacks"), largest=8 * MIB) as server:
        with Client(server.plain) as client:
            for stream in range(1, 2000, 2):
                client.send(client.call(stream, EMPTY_CALL, b""))
                assert client.answer(stream).grpc_status == 0
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """The attacker's connection."""
    with Client(server.plain) as client:
        yield client

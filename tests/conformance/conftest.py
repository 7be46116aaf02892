"""Servers on both transports, and channels to them."""

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests import event_loop
from tests.conformance.server_process import SERVER_NAME, Server, serving

# grpcio's default limit of a received message.
MAX_MESSAGE = 4 * 1024 * 1024

event_loop_of_all_tests = event_loop.event_loop_of_all_tests


@pytest.fixture(scope="session", params=["inprocess", "grpcio"])
def transport(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield the server on each transport."""
    with serving(request.param, tmp_path_factory.mktemp(request.param), max_message=MAX_MESSAGE, quiet=False) as server:
        yield server


@pytest.fixture(params=["plain", "tls"])
async def channel(request: pytest.FixtureRequest, transport: Server) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a channel of grpcio's client to it."""
    if request.param == "plain":
        created = grpc.aio.insecure_channel(f"127.0.0.1:{transport.plain}")
    else:
        credentials = grpc.ssl_channel_credentials(transport.authority.read_bytes())
        options = [("grpc.ssl_target_name_override", SERVER_NAME)]
        created = grpc.aio.secure_channel(f"127.0.0.1:{transport.tls}", credentials, options)
    async with created:
        yield created

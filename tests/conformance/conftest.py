import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.conformance.process import SERVER_NAME, Server, serving

# grpcio's default.
LARGEST = 4 * 1024 * 1024


@pytest.fixture(scope="session", params=["inprocess", "grpcio"])
def transport(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same server on either transport."""
    with serving(request.param, tmp_path_factory.mktemp(request.param), largest=LARGEST, quiet=False) as server:
        yield server


@pytest.fixture(params=["plain", "tls"])
async def channel(request: pytest.FixtureRequest, transport: Server) -> AsyncIterator[grpc.aio.Channel]:
    """grpcio's own client, connected to it."""
    if request.param == "plain":
        opened = grpc.aio.insecure_channel(f"127.0.0.1:{transport.plain}")
    else:
        credentials = grpc.ssl_channel_credentials(transport.authority.read_bytes())
        options = [("grpc.ssl_target_name_override", SERVER_NAME)]
        opened = grpc.aio.secure_channel(f"127.0.0.1:{transport.tls}", credentials, options)
    async with opened:
        yield opened
    # The client's poller may still have events for this loop, and stumbles over one that is closed.
    await asyncio.sleep(0.02)

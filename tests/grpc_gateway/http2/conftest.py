import pytest

from tests.grpc_gateway.http2.http2_client import Client


@pytest.fixture
def client() -> Client:
    """Return a client that has exchanged settings with its server."""
    return Client().connect()

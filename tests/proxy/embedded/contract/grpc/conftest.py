"""The same fixtures as before a real cluster. The service comes over the socket, so one kind of broker is enough."""

from collections.abc import Iterator

import pytest

from tests.cluster.grpc.conftest import consumer, service
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster

__all__ = ["consumer", "service"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("embedded"), durable=True) as cluster:
        yield cluster

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.cluster.backends import Backend
from tests.cluster.client import create_topic, unique
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.grpc.replica import Product, Service
from tests.cluster.servers import Cluster, Gantry
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster

_RULES = """
[[rule]]
name = "no-entry"
kind = "deny"
match = { topics = ["denied*"] }
"""


@pytest.fixture(scope="session", params=("inprocess", "grpcio"))
def transport(request: pytest.FixtureRequest) -> str:
    """The HTTP/2 implementation of the replica: Gantry's own, or grpcio's."""
    return str(request.param)


@pytest.fixture(scope="session")
def product(transport: str, backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Product:
    """The settings of the replica, whose rules deny the topics `denied*`."""
    return Product(tmp_path_factory.mktemp(f"{backend}-{transport}"), transport, _RULES)


@pytest.fixture(scope="package")
def cluster(
    cluster: Cluster | EmbeddedCluster, backend: Backend, product: Product
) -> Iterator[Cluster | EmbeddedCluster]:
    """The servers of all scenarios; an embedded broker in the replica's process for each transport."""
    if backend is not Backend.IN_PROCESS:
        yield cluster
        return
    with EmbeddedCluster(product.directory, durable=True, proxy=True, config=product.config) as embedded:
        yield embedded


@pytest.fixture(scope="package")
def service(cluster: Cluster | EmbeddedCluster, product: Product) -> Iterator[Service]:
    """The replica that clients connect to, a process of the product."""
    if isinstance(cluster, EmbeddedCluster) and cluster.proxy is not None:
        yield Service(cluster.proxy.address, product)
        return
    with Gantry(product.directory, cluster.namesrv, product.config) as gantry:
        yield Service(gantry.address, product)


@pytest.fixture
async def consumer(cluster: Cluster, service: Service) -> AsyncIterator[Consumer]:
    """Return a consumer with a unique topic and group, which has received once."""
    async with Consumer(service.address, unique("group"), await create_topic(cluster.broker, "grpc")) as grpc_consumer:
        # A new group starts at the end of the topic.
        await grpc_consumer.receive(wait=0.1)
        yield grpc_consumer

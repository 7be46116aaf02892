from collections.abc import AsyncIterator

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.grpc.replica import Replica
from tests.cluster.servers import Cluster


@pytest.fixture
async def service(cluster: Cluster) -> AsyncIterator[Replica]:
    async with Replica(cluster.namesrv, min_polling=0.1, min_invisible=1.0) as replica:
        yield replica


@pytest.fixture
async def consumer(cluster: Cluster, service: Replica) -> AsyncIterator[Consumer]:
    """Return a consumer with a unique topic and group, which has received once."""
    async with Consumer(service.address, unique("group"), await create_topic(cluster.broker, "grpc")) as grpc_consumer:
        # A new group starts at the end of the topic.
        await grpc_consumer.receive(wait=0.1)
        yield grpc_consumer

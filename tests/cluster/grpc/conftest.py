from collections.abc import AsyncIterator

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.grpc.kit import Consumer, Replica
from tests.cluster.servers import Cluster


@pytest.fixture
async def service(cluster: Cluster) -> AsyncIterator[Replica]:
    async with Replica(cluster.namesrv, min_polling=0.1, min_invisible=1.0) as replica:
        yield replica


@pytest.fixture
async def consumer(cluster: Cluster, service: Replica) -> AsyncIterator[Consumer]:
    """A consumer of a topic and a group of its own, which has begun to receive."""
    async with Consumer(service.address, unique("group"), await create_topic(cluster.broker, "grpc")) as one:
        # A new group begins at the end of the topic.
        await one.receive(wait=0.1)
        yield one

"""Settings of the table `cluster` reach the backend."""

import pytest

from tests.proxy.backends.cluster.cluster_requests import SEND, ask
from tests.proxy.backends.cluster.servers import Cluster

pytestmark = pytest.mark.anyio


async def test_the_timeout_of_a_connection_applies_to_name_servers_and_brokers(cluster: Cluster) -> None:
    await cluster.broker()
    backend = await cluster.backend(connect_timeout=1.5)
    await ask(backend, SEND)
    connections = [*backend._name_servers.connections, *backend._servers.values()]
    assert len(connections) >= 2
    assert {connection._options.connect_timeout for connection in connections} == {1.5}


async def test_cached_routes_are_refreshed_and_dropped_after_the_times_of_the_settings(cluster: Cluster) -> None:
    backend = await cluster.backend(route_refresh=7.0, route_idle=70.0)
    assert (backend._routes._refresh, backend._routes._idle) == (7.0, 70.0)

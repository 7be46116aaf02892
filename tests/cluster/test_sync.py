"""Group members shared with the official Java proxy, as during the migration of a cluster."""

from collections.abc import Iterator

import pytest

from remoting.codes import RequestCode
from tests.cluster.client import Client, create_topic, lists, unique, wait_until
from tests.cluster.servers import Cluster, Gantry, started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]

_CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a Java proxy."""
    with started(tmp_path_factory, "mixed", "--quick", "--proxy-port", "0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gantry(mixed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), mixed.namesrv) as gantry:
        yield gantry


async def test_members_are_shared_with_a_java_proxy(mixed: Cluster, gantry: Gantry) -> None:
    """Guards against clients without a connection that are not announced (8.9)."""
    topic, group = await create_topic(mixed.broker, "sync"), unique("group")
    java = mixed.addresses["proxy_remoting"]
    async with (
        Client(java, "a") as a,
        Client(gantry.address, "b") as b,
        Client(java) as at_java,
        Client(gantry.address) as at_gantry,
    ):
        await b.heartbeat({group: [topic]})

        async def known_to_gantry() -> bool:
            # Repeated, because the replica has just started and receives only new announcements.
            await a.heartbeat({group: [topic]})
            return await lists(at_gantry, group, "a", "b")()

        await wait_until(known_to_gantry, "a being known to Gantry")
        await wait_until(lists(at_java, group, "a", "b"), "b being known to the Java proxy", 60)
        # Announced by the Java proxy, which notifies no client (4.4), and sent by Gantry.
        assert (await b.push(_CHANGED)).fields["consumerGroup"] == group
        b.pushes.clear()

        await a.get(RequestCode.UNREGISTER_CLIENT, {"clientID": "a", "consumerGroup": group})
        assert (await b.push(_CHANGED)).fields["consumerGroup"] == group
        # A notification may be a late one of a join.
        await wait_until(lists(at_gantry, group, "b"), "a being gone from Gantry")
        assert await at_java.consumers(group) == ["b"]

        b.pushes.clear()
        await a.heartbeat({group: [topic]})
        await b.push(_CHANGED)
        async with Client(gantry.address, "c") as c:
            await c.heartbeat({group: [topic]})
            await wait_until(lists(at_java, group, "a", "b", "c"), "c being known to the Java proxy")
            c.abort()
        await wait_until(lists(at_java, group, "a", "b"), "c being gone from the Java proxy")
        await wait_until(lists(at_gantry, group, "a", "b"), "a being known to Gantry again")


async def test_clients_of_a_stopped_replica_leave_their_groups_at_a_java_proxy(
    mixed: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, group = await create_topic(mixed.broker, "drained"), unique("group")
    async with Client(mixed.addresses["proxy_remoting"]) as at_java:
        with Gantry(tmp_path_factory.mktemp("drained"), mixed.namesrv) as gantry:
            async with Client(gantry.address, "b") as client:
                await client.heartbeat({group: [topic]})
                await wait_until(lists(at_java, group, "b"), "b being known to the Java proxy", 60)
                gantry.stop()
        await wait_until(lists(at_java, group), "b being gone from the Java proxy")

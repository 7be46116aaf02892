"""Groups: all brokers, replicas and members have the same view of the members."""

import anyio
import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client, create_topic, described, json, lists, message_queue, unique, wait_until
from tests.cluster.coverage import covers
from tests.cluster.servers import Cluster, Gantry, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@covers(
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
)
async def test_members_of_a_group_are_the_same_for_all_replicas_and_brokers(
    cluster: Cluster, gantry: Gantry, replica: Gantry
) -> None:
    """Guards against missing notifications, without which members rebalance only every 20 s (8.10)."""
    topic, group = await create_topic(cluster.broker, "group"), unique("group")
    async with (
        Client(gantry.address, "a") as one,
        Client(gantry.address, "b") as two,
        Client(replica.address, "c") as three,
        Client(cluster.broker) as direct,
    ):
        beat = await one.heartbeat({group: [topic]})
        assert await one.consumers(group) == ["a"]
        assert await direct.consumers(group) == ["a"]
        # Clients use this as the broker's version, and send no SQL filters to old brokers.
        assert beat.version >= 479
        for client in (two, three):
            await client.heartbeat({group: [topic]})
            assert await client.consumers(group) == sorted(await direct.consumers(group))
        await eventually(lambda: len(one.pushed(_CHANGED)) >= 2, "two notices")
        assert {push.fields["consumerGroup"] for push in one.pushed(_CHANGED)} == {group}
        assert {tuple(sorted(await client.consumers(group))) for client in (one, two, three, direct)} == {
            ("a", "b", "c")
        }
        one.pushes.clear()
        await three.get(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group})
        assert sorted(await direct.consumers(group)) == ["a", "b"]
        await one.push(_CHANGED)
        assert await one.consumers(group) == ["a", "b"]
        # A repetition has no effect.
        await three.get(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group})


async def test_an_aborted_connection_leaves_its_groups_and_members_are_notified(
    cluster: Cluster, gantry: Gantry, replica: Gantry
) -> None:
    """Guards against a client without a connection that remains a member elsewhere for minutes, and against one that
    reconnects and is listed twice, so that queues have no owner meanwhile (8.9)."""
    topic, group = await create_topic(cluster.broker, "cut"), unique("group")
    async with Client(gantry.address, "stays") as stays, Client(cluster.broker) as direct:
        await stays.heartbeat({group: [topic]})
        async with Client(replica.address, "cut") as cut:
            await cut.heartbeat({group: [topic]})
            await stays.push(_CHANGED)
            cut.abort()
        await stays.push(_CHANGED)
        # A notification may be a late one of a join.
        for client in (stays, direct):
            await wait_until(lists(client, group, "stays"), "the departure")
        async with Client(replica.address, "cut") as first, Client(gantry.address, "cut") as second:
            await first.heartbeat({group: [topic]})
            await second.heartbeat({group: [topic]})
            assert await stays.consumers(group) == ["cut", "stays"]
            assert await first.consumers(group) == ["cut", "stays"]


async def test_an_unknown_group_is_rejected_clearly(gantry: Gantry) -> None:
    """Guards against an empty error for a group without members (8.8)."""
    async with Client(gantry.address) as client:
        for code in (RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUMER_CONNECTION_LIST):
            reply = await client.ask(code, {"consumerGroup": unique("nobody")})
            assert reply.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUMER_NOT_ONLINE}
            assert reply.remark
            assert "Exception" not in reply.remark


@covers(RequestCode.GET_CONSUMER_CONNECTION_LIST)
async def test_connections_of_a_group_have_the_clients_addresses(cluster: Cluster, gantry: Gantry) -> None:
    topic, group = await create_topic(cluster.broker, "connections"), unique("group")
    async with Client(gantry.address, "one") as one, Client(cluster.broker, "direct") as direct:
        for client in (one, direct):
            await client.heartbeat({group: [topic]})
        found = json(await one.get(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}))
        connections = {item["clientId"]: item for item in found["connectionSet"]}
        assert set(connections) == {"one", "direct"}
        assert connections["one"]["clientAddr"] == one.local_address
        assert (connections["one"]["language"], connections["one"]["version"]) == ("JAVA", 481)
        assert set(found["subscriptionTable"]) >= {topic}
        assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")


def _lock(client: Client, group: str, queues: list[dict[str, object]]) -> bytes:
    return orjson.dumps(
        {"consumerGroup": group, "clientId": client.client_id, "onlyThisBroker": False, "mqSet": queues}
    )


@covers(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
async def test_queues_are_locked_by_one_client_at_a_time(cluster: Cluster, gantry: Gantry, replica: Gantry) -> None:
    """Guards against waiting for a response to a oneway unlock (8.11)."""
    topic, group = await create_topic(cluster.broker, "lock", queues=4), unique("group")
    queues = [message_queue(topic, number) for number in range(4)]
    async with Client(gantry.address) as one, Client(replica.address) as two:

        async def lock(client: Client, wanted: list[dict[str, object]]) -> list[int]:
            reply = await client.get(RequestCode.LOCK_BATCH_MQ, {}, _lock(client, group, wanted))
            return sorted(queue["queueId"] for queue in json(reply)["lockOKMQSet"])

        assert await lock(one, queues[:3]) == [0, 1, 2]
        assert await lock(two, queues) == [3]
        assert await lock(one, queues[:3]) == [0, 1, 2]
        one.send_oneway(RequestCode.UNLOCK_BATCH_MQ, {}, _lock(one, group, queues[:1]))

        async def freed() -> bool:
            return await lock(two, queues) == [0, 3]

        await wait_until(freed, "the queue being free")
        await one.get(RequestCode.UNLOCK_BATCH_MQ, {}, _lock(one, group, queues))
        assert await lock(two, queues) == [0, 1, 2, 3]
        assert await lock(one, []) == []


@covers(RequestCode.QUERY_ASSIGNMENT)
async def test_queue_assignment_divides_the_queues_among_members(
    cluster: Cluster, gantry: Gantry, replica: Gantry
) -> None:
    topic, group = await create_topic(cluster.broker, "assignment", queues=4), unique("group")
    async with Client(gantry.address) as one, Client(replica.address) as two:
        for client in (one, two):
            await client.heartbeat({group: [topic]})

        async def assigned(client: Client) -> set[int]:
            question = {
                "topic": topic,
                "consumerGroup": group,
                "clientId": client.client_id,
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }
            reply = await client.ask(RequestCode.QUERY_ASSIGNMENT, {}, orjson.dumps(question))
            assert reply.code == ResponseCode.SUCCESS, described(reply)
            return {item["messageQueue"]["queueId"] for item in json(reply)["messageQueueAssignments"]}

        shares = [await assigned(client) for client in (one, two)]
        assert sorted(map(len, shares)) == [2, 2]
        assert shares[0] | shares[1] == {0, 1, 2, 3}


async def test_repeated_heartbeats_notify_no_member(cluster: Cluster, gantry: Gantry) -> None:
    """A client sends one heartbeat per broker of its route, and Gantry receives all of them."""
    topic, group = await create_topic(cluster.broker, "beats"), unique("group")
    async with Client(gantry.address) as one, Client(gantry.address) as two:
        await one.heartbeat({group: [topic]})
        await two.heartbeat({group: [topic]})
        # A client is also notified of its own join, by every broker, and not at the same time.
        await eventually(lambda: len(one.pushed(_CHANGED)) >= 2, "notices of both arrivals")
        while one.pushed(_CHANGED):
            one.pushes.clear()
            await anyio.sleep(2)
        for _ in range(5):
            await two.heartbeat({group: [topic]})
        await anyio.sleep(0.3)
        assert not one.pushed(_CHANGED)

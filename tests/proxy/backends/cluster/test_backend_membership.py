import asyncio

import pytest

from proxy.backends.cluster import membership
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.client_registry import Groups
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import TopicNotExist
from remoting.outcomes import Reply
from tests.proxy.backends.cluster.cluster_requests import (
    SEND,
    ask,
)
from tests.proxy.backends.cluster.servers import Cluster, Server
from tests.proxy.fakes import FakeChannel, settle
from tests.proxy.messages import heartbeat, request

pytestmark = pytest.mark.anyio


async def test_broker_request_to_a_member_is_answered(cluster: Cluster) -> None:
    broker = await cluster.broker()

    def push(channel: FakeChannel, command: RemotingCommand) -> Reply:
        return channel.request(command, 1.0)

    backend = await cluster.backend(push=push)
    client = FakeChannel()
    client.session.client_id = "c1"
    groups = Groups(consumers=frozenset("g"))
    client.session.membership.heartbeat = heartbeat("c1", {"g": ["orders"]})
    await backend.register(client, groups, ["broker-a"])
    assert broker.codes == [34]
    answer = await broker.connections[-1].request(
        request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1"), 5.0
    )
    assert answer.fields == {"answered by": "c1"}
    refused = await broker.connections[-1].request(
        request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="h", clientId="c1"), 5.0
    )
    assert refused.code == 206
    await backend.unregister(client, groups)
    assert broker.codes == [34, 35]


async def test_the_retry_topic_of_a_new_group_is_found_after_its_first_heartbeat(cluster: Cluster) -> None:
    """Its first consumer looks it up before and after it registers; otherwise, it misses retries for half a minute."""
    topic = "%RETRY%g"

    def create_retry_topic(_: RemotingCommand) -> RemotingCommand:
        cluster.topics[topic] = ["broker-a"]
        return commands.success()

    await cluster.broker(answer=create_retry_topic)
    backend = await cluster.backend()
    with pytest.raises(TopicNotExist):
        await backend.route(topic)
    client = FakeChannel()
    client.session.membership.heartbeat = heartbeat("c1", {"g": ["orders"]})
    await backend.register(client, Groups(consumers=frozenset("g")), ["broker-a"])
    assert list((await backend.route(topic)).brokers) == ["broker-a"]


@pytest.fixture
def dialling(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Connections come about while this is set."""
    free, dial = asyncio.Event(), ServerConnection._open
    free.set()

    async def later(link: ServerConnection) -> RemotingConnection:
        await free.wait()
        return await dial(link)

    monkeypatch.setattr(ServerConnection, "_open", later)
    monkeypatch.setattr(membership, "_REPLY_TIMEOUT", 0.05)
    monkeypatch.setattr(membership, "_RETRY_DELAY", 0.01)
    return free


def member(client_id: str, *groups: str) -> tuple[FakeChannel, Groups]:
    channel = FakeChannel()
    channel.session.client_id = client_id
    channel.session.membership.heartbeat = heartbeat(client_id, {group: ["orders"] for group in groups})
    return channel, Groups(consumers=frozenset(groups))


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with another on its connection"])
async def test_client_closed_while_its_connection_opens_is_not_registered(
    cluster: Cluster, dialling: asyncio.Event, shared: bool
) -> None:
    broker = await cluster.broker()
    backend = await cluster.backend()
    dialling.clear()
    gone, groups = member("gone", "g")
    stays, others = member("stays", "h")
    registering = [backend.register(gone, groups, ["broker-a"])]
    if shared:
        registering.append(backend.register(stays, others, ["broker-a"]))
    tasks = [asyncio.ensure_future(work) for work in registering]
    await settle()
    gone.closed = True
    await backend.unregister(gone, groups)
    await asyncio.gather(*tasks)
    assert broker.received == []
    dialling.set()
    if shared:
        await broker.until(lambda server: bool(server.received))
    await asyncio.sleep(0.1)
    kept = stays.session.membership.heartbeat
    assert kept is not None
    assert {command.body for command in broker.received} == ({kept.body} if shared else set())
    assert set(broker.codes) <= {RequestCode.HEART_BEAT}


async def test_client_closed_before_its_connection_opens_is_unregistered(
    cluster: Cluster, dialling: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_REPLY_TIMEOUT", 5)
    broker = await cluster.broker()
    backend = await cluster.backend()
    dialling.clear()
    gone, groups = member("gone", "g")
    registering = asyncio.ensure_future(backend.register(gone, groups, ["broker-a"]))
    await settle()
    gone.closed = True
    leaving = asyncio.ensure_future(backend.unregister(gone, groups))
    await settle()
    dialling.set()
    await asyncio.gather(registering, leaving)
    assert broker.codes == [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT]
    await broker.until(lambda server: all(connection.closed for connection in server.connections))


async def test_request_connection_rejects_broker_requests(cluster: Cluster) -> None:
    broker: Server = await cluster.broker()
    backend = await cluster.backend()
    await ask(backend, SEND)
    answer = await broker.connections[-1].request(
        request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g"), 5.0
    )
    assert answer.code == 3

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.backends.cluster import backend as backends
from proxy.backends.cluster import membership
from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.client_registry import Groups
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost, RequestTimeout, ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import Cluster, Server, running
from tests.proxy.fakes import FakeChannel, Reply, settle
from tests.proxy.messages import complete, heartbeat, request

pytestmark = pytest.mark.anyio

SEND, PULL, SEND_BACK, POP, MAX_OFFSET, COMMIT = 310, 11, 36, 200050, 30, 15
# Requests for a master or an acting master only: POP, ACK, PEEK, CHANGE_INVISIBLE, NOTIFICATION,
# POLLING_INFO, BATCH_ACK, LOCK, UNLOCK.
ESCAPE = (*range(200050, 200056), 200151, 41, 42)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as cluster:
        yield cluster


def ask(backend: ClusterBackend, code: int, channel: FakeChannel | None = None, /, **fields: str) -> Reply:
    return backend.request("broker-a", REQUESTS[code], complete(REQUESTS[code], **fields), 10.0, channel)


async def by(reply: Reply) -> str:
    """Return the name and id of the broker that answered."""
    async with asyncio.timeout(30):
        return (await reply).fields["by"]


async def learn(backend: ClusterBackend) -> None:
    """Refresh the broker table; twice, as a refresh with older data may have been in progress."""
    for _ in range(2):
        await backend.refresh_brokers()
        await settle()


def silent(_: RemotingCommand) -> None:
    """A broker that does not answer."""


# Choice of the broker.


@pytest.mark.parametrize(
    ("code", "ids", "acting", "served"),
    [
        (SEND, (0, 1), False, 0),
        (SEND, (1,), False, None),
        (SEND, (1,), True, None),
        (PULL, (0, 1), False, 0),
        (PULL, (1, 2), False, 1),
        (MAX_OFFSET, (2,), False, 2),
        (POP, (0, 1), False, 0),
        (POP, (1,), False, None),
        (POP, (0, 1), True, 0),
        (POP, (2, 1), True, 1),
        (SEND_BACK, (0, 1), False, 0),
        (SEND_BACK, (1,), False, None),
        (SEND_BACK, (2, 1), True, 1),
    ],
)
async def test_request_goes_to_the_replica_that_may_serve_it(
    cluster: Cluster, code: int, ids: tuple[int, ...], acting: bool, served: int | None
) -> None:
    cluster.acting = acting
    for number in ids:
        await cluster.broker(number=number)
    backend = await cluster.backend()
    if served is None:
        reply = ask(backend, code)
        assert reply.done(), "there is nothing to wait for"
        with pytest.raises(ServiceUnavailable, match="broker-a has no master now") as caught:
            await reply
        assert caught.value.code == 14
        assert backend.selector.diverted == {"no_master": 1}
    else:
        assert await by(ask(backend, code)) == f"broker-a/{served}"
        slave = 0 not in ids and code in (PULL, MAX_OFFSET, POP, SEND_BACK)
        assert backend.selector.diverted == ({"slave": 1} if slave else {})


async def test_unlisted_broker_is_unavailable(cluster: Cluster) -> None:
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    with pytest.raises(ServiceUnavailable, match="broker-a"):
        await ask(backend, SEND)
    backend.oneway("broker-a", REQUESTS[15], complete(REQUESTS[15]), None)
    await settle()
    assert backend.selector.diverted == {"unknown_broker": 2}


async def test_unlisted_broker_is_looked_up_at_most_once_a_second(cluster: Cluster) -> None:
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    asked = len(cluster.names[0].received)

    async def after(seconds: float) -> int:
        """Return the name server's request count after a request that comes `seconds` later."""
        backend._unknown = {name: since - seconds for name, since in backend._unknown.items()}
        with pytest.raises(ServiceUnavailable, match="no name server lists a broker broker-a"):
            await ask(backend, SEND)
        return len(cluster.names[0].received) - asked

    assert [await after(0.0) for _ in range(5)] == [1] * 5
    # Repeated requests do not postpone the next look-up.
    assert [await after(0.4) for _ in range(6)] == [1, 1, 2, 2, 2, 3]
    await cluster.broker("broker-a")
    backend._unknown.clear()
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_number_of_noted_unlisted_brokers_is_limited(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_MAX_UNKNOWN", 3)
    backend = await cluster.backend()
    for number in range(10):
        with pytest.raises(ServiceUnavailable):
            await backend.request(f"broker-{number}", REQUESTS[SEND], complete(REQUESTS[SEND]), 10.0, None)
        assert len(backend._unknown) <= 3


async def test_request_to_a_new_broker_refreshes_the_table(cluster: Cluster) -> None:
    backend = await cluster.backend()
    await cluster.broker()
    assert await by(ask(backend, SEND)) == "broker-a/0"
    assert set(await backend.brokers()) == {"broker-a"}


@pytest.mark.parametrize(("code", "served"), [(PULL, "broker-a/1"), (MAX_OFFSET, "broker-a/1")])
async def test_slave_serves_reads_of_an_unreachable_master(cluster: Cluster, code: int, served: str) -> None:
    (await cluster.broker(number=0)).stop()
    await cluster.broker(number=1)
    backend = await cluster.backend()
    assert await by(ask(backend, code)) == served
    assert backend.selector.diverted["unreachable"] == 1
    assert await by(ask(backend, code)) == served
    assert backend.selector.diverted["unreachable"] == 1, "it is not tried again at once"


@pytest.mark.parametrize("code", ESCAPE)
async def test_master_only_requests_are_not_sent_to_a_plain_slave(cluster: Cluster, code: int) -> None:
    master = await cluster.broker(number=0)
    slave = await cluster.broker(number=1)
    backend = await cluster.backend()
    assert await by(ask(backend, code)) == "broker-a/0"
    master.stop()
    assert await by(ask(backend, PULL)) == "broker-a/1"
    for _ in range(2):
        with pytest.raises((ServiceUnavailable, ConnectionLost)):
            await by(ask(backend, code))
    cluster.table["broker-a"] = {"1": slave.address}
    await learn(backend)
    with pytest.raises(ServiceUnavailable, match="no master now"):
        await by(ask(backend, code))
    assert slave.codes == [PULL]


@pytest.mark.parametrize("code", ESCAPE)
async def test_acting_master_serves_master_only_requests(cluster: Cluster, code: int) -> None:
    cluster.acting = True
    for number in (2, 1):
        await cluster.broker(number=number)
    backend = await cluster.backend()
    assert await by(ask(backend, code)) == "broker-a/1"
    assert backend.selector.diverted == {"slave": 1}
    master = await cluster.broker(number=0)
    await learn(backend)
    assert await by(ask(backend, code)) == "broker-a/0"
    master.stop()
    with pytest.raises((ServiceUnavailable, ConnectionLost)):
        await by(ask(backend, code))


async def test_commit_is_not_sent_to_a_slave_while_a_master_is_listed(cluster: Cluster) -> None:
    """The master overwrites the slave's offsets."""
    master = await cluster.broker(number=0)
    slave = await cluster.broker(number=1)
    master.stop()
    backend = await cluster.backend()
    assert await by(ask(backend, PULL)) == "broker-a/1"
    with pytest.raises(ServiceUnavailable):
        await by(ask(backend, COMMIT))
    backend.oneway("broker-a", REQUESTS[COMMIT], complete(REQUESTS[COMMIT]), None)
    assert await by(ask(backend, PULL)) == "broker-a/1"
    assert slave.codes == [PULL, PULL]
    del cluster.table["broker-a"]["0"]
    await learn(backend)
    assert await by(ask(backend, COMMIT)) == "broker-a/1"


async def test_slave_serves_reads_of_a_hanging_master(cluster: Cluster) -> None:
    master = await cluster.broker(number=0, answer=silent)
    await cluster.broker(number=1)
    backend = await cluster.backend(connections_per_broker=1)
    late = backend.request("broker-a", REQUESTS[SEND], complete(REQUESTS[SEND]), 0.1, None)
    sending, reading = ask(backend, SEND), ask(backend, MAX_OFFSET)
    await master.until(lambda server: len(server.codes) == 3)
    await asyncio.sleep(0.3)
    backend._wheel.advance()
    with pytest.raises(RequestTimeout):
        await late
    with pytest.raises(ConnectionLost):
        await by(sending)
    assert await by(reading) == "broker-a/1"
    assert await by(ask(backend, MAX_OFFSET)) == "broker-a/1", "for a moment it is not tried again"
    assert (master.codes.count(SEND), master.codes.count(MAX_OFFSET)) == (2, 1)


async def test_slave_does_not_serve_writes_of_an_unreachable_master(cluster: Cluster) -> None:
    (await cluster.broker(number=0)).stop()
    slave = await cluster.broker(number=1)
    backend = await cluster.backend()
    with pytest.raises(ServiceUnavailable):
        await ask(backend, SEND)
    assert SEND not in slave.codes


async def test_in_flight_send_is_not_repeated_after_a_lost_connection(cluster: Cluster) -> None:
    master = await cluster.broker(number=0, answer=silent)
    slave = await cluster.broker(number=1)
    backend = await cluster.backend()
    reply = ask(backend, SEND)
    await master.until(lambda server: SEND in server.codes)
    master.cut()
    with pytest.raises(ConnectionLost, match="may have been served"):
        await reply
    assert (master.codes.count(SEND), slave.codes.count(SEND)) == (1, 0)
    assert backend.selector.diverted["lost"] == 1


@pytest.mark.parametrize("code", [PULL, MAX_OFFSET])
async def test_in_flight_read_is_repeated_at_the_slave_after_a_lost_connection(cluster: Cluster, code: int) -> None:
    master = await cluster.broker(number=0, answer=silent)
    await cluster.broker(number=1)
    backend = await cluster.backend()
    reply = ask(backend, code)
    await master.until(lambda server: code in server.codes)
    master.stop()
    assert await by(reply) == "broker-a/1"


async def test_repeatable_request_is_repeated_once_at_a_single_broker(cluster: Cluster) -> None:
    master = await cluster.broker(answer=silent)
    backend = await cluster.backend()
    reply = ask(backend, PULL)
    for times in (1, 2):
        await master.until(lambda server, times=times: server.codes.count(PULL) == times)  # type: ignore[misc]
        master.cut()
    with pytest.raises(ServiceUnavailable):
        await reply
    assert master.codes.count(PULL) == 2


async def test_in_flight_pop_is_not_repeated(cluster: Cluster) -> None:
    master = await cluster.broker(number=0, answer=silent)
    slave = await cluster.broker(number=1)
    backend = await cluster.backend()
    reply = ask(backend, POP)
    await master.until(lambda server: POP in server.codes)
    master.cut()
    with pytest.raises(ConnectionLost):
        await reply
    assert POP not in slave.codes


async def test_reads_follow_the_suggested_broker(cluster: Cluster) -> None:
    sends = {"0": "1", "1": "1"}

    def pulled(number: str) -> Reply | object:
        return lambda _: commands.success({"by": f"broker-a/{number}", "suggestWhichBrokerId": sends[number]})

    await cluster.broker(number=0, answer=pulled("0"))  # type: ignore[arg-type]
    await cluster.broker(number=1, answer=pulled("1"))  # type: ignore[arg-type]
    backend = await cluster.backend()
    assert await by(ask(backend, PULL, queueId="7")) == "broker-a/0"
    assert await by(ask(backend, PULL, queueId="7")) == "broker-a/1"
    assert await by(ask(backend, PULL, queueId="8")) == "broker-a/0", "another queue is another matter"
    assert await by(ask(backend, SEND)) == "broker-a/0", "so is a write"
    sends["1"] = "0"
    assert await by(ask(backend, PULL, queueId="7")) == "broker-a/1"
    assert await by(ask(backend, PULL, queueId="7")) == "broker-a/0"


async def test_suggested_broker_that_is_unlisted_is_ignored(cluster: Cluster) -> None:
    answer = commands.success({"by": "broker-a/0", "suggestWhichBrokerId": "5"})
    await cluster.broker(answer=lambda _: commands.response(0, dict(answer.fields)))
    backend = await cluster.backend()
    for _ in range(2):
        assert await by(ask(backend, PULL)) == "broker-a/0"


# Order, oneways, back-pressure, keep-alive.


async def test_requests_of_one_client_arrive_in_order(cluster: Cluster) -> None:
    broker = await cluster.broker()
    backend = await cluster.backend()
    clients = [FakeChannel() for _ in range(3)]
    replies = [ask(backend, SEND, clients[number % 3], a=str(number % 3), g=str(number)) for number in range(3000)]
    await asyncio.gather(*replies)
    for client in range(3):
        numbers = [int(c.fields["g"]) for c in broker.received if c.code == SEND and c.fields["a"] == str(client)]
        assert numbers == list(range(client, 3000, 3))


async def test_oneways_and_requests_of_one_client_arrive_in_order(cluster: Cluster) -> None:
    broker = await cluster.broker()
    backend = await cluster.backend()
    client = FakeChannel()
    for number in range(50):
        backend.oneway("broker-a", REQUESTS[15], complete(REQUESTS[15], commitOffset=str(number)), client)
    await ask(backend, 14, client)
    assert broker.codes == [15] * 50 + [14]
    assert [int(c.fields["commitOffset"]) for c in broker.received[:50]] == list(range(50))
    assert all(c.is_oneway for c in broker.received[:50])


async def test_master_only_oneway_without_a_master_is_rejected(cluster: Cluster) -> None:
    await cluster.broker(number=1)
    backend = await cluster.backend()
    with pytest.raises(ServiceUnavailable):
        backend.oneway("broker-a", REQUESTS[37], complete(REQUESTS[37]), None)
    assert backend.selector.diverted == {"no_master": 1}


async def test_oneway_to_a_new_broker_refreshes_the_table(cluster: Cluster) -> None:
    backend = await cluster.backend()
    broker = await cluster.broker()
    backend.oneway("broker-a", REQUESTS[15], complete(REQUESTS[15]), None)
    await broker.until(lambda server: server.codes == [15])


@pytest.mark.parametrize("oneway", [False, True])
async def test_congested_broker_pauses_reading_from_its_clients(cluster: Cluster, oneway: bool) -> None:
    await cluster.broker()
    backend = await cluster.backend(connections_per_broker=1)
    client, other = FakeChannel(), FakeChannel()
    await ask(backend, SEND, client)
    ((_, link),) = backend._servers.items()
    assert link.connection is not None
    link.connection.pause_writing()
    for _ in range(3):
        if oneway:
            backend.oneway("broker-a", REQUESTS[15], complete(REQUESTS[15]), client)
        else:
            ask(backend, SEND, client).add_done_callback(lambda done: done.cancelled() or done.exception())
    assert (client.pauses, other.pauses) == (1, 0)
    link.connection.resume_writing()
    assert client.pauses == 0


async def test_idle_connections_receive_keepalives(cluster: Cluster) -> None:
    broker = await cluster.broker()
    backend = await cluster.backend(connections_per_broker=1)
    await ask(backend, SEND)
    await backend._keep_alive()
    assert RequestCode.HEART_BEAT not in broker.codes, "it was not silent"
    ((_, link),) = backend._servers.items()
    assert link.connection is not None
    link.connection.read_at -= 60
    await backend._keep_alive()
    await broker.until(lambda server: RequestCode.HEART_BEAT in server.codes)


async def test_connections_to_unlisted_addresses_are_closed(cluster: Cluster) -> None:
    old = await cluster.broker()
    backend = await cluster.backend()
    await ask(backend, SEND)
    cluster.table["broker-a"] = {}
    await cluster.broker()
    await backend._refresh()
    assert await by(ask(backend, SEND)) == "broker-a/0"
    await old.until(lambda server: all(connection.closed for connection in server.connections))
    assert len(old.received) == 1


# Name servers.


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_brokers_of_different_name_servers_are_merged(cluster: Cluster, order: tuple[int, int]) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    views = [{name: cluster.table[name]} for name in ("broker-a", "broker-b")]
    servers = [await cluster.name_server(table=views[number]) for number in order]
    backend = await cluster.backend(*(server.address for server in servers))
    assert set(await backend.brokers()) == {"broker-a", "broker-b"}


async def test_route_of_one_name_server_is_enough(cluster: Cluster) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    ignorant = await cluster.server(lambda _: commands.response(17, remark="no"))
    cluster.names.append(ignorant)
    knowing = await cluster.name_server()
    backend = await cluster.backend(f"127.0.0.1:{free_port()}", ignorant.address, knowing.address)
    assert (await backend.route("orders")).brokers == ("broker-a",)
    assert backend.cached_route("orders") is not None
    with pytest.raises(TopicNotExist):
        await backend.route("nowhere")


@pytest.mark.parametrize(
    "answer",
    [
        commands.success(body=b"garbage"),
        commands.response(1, remark="broken"),
        commands.success(body=b'{"brokerAddrTable":{"x":1},"brokerDatas":5}'),
    ],
    ids=["garbage", "error", "malformed"],
)
async def test_failing_name_server_does_not_hide_the_others(cluster: Cluster, answer: RemotingCommand) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    broken = await cluster.server(lambda _: commands.response(answer.code, body=answer.body, remark=answer.remark))
    healthy = await cluster.name_server()
    backend = await cluster.backend(broken.address, healthy.address)
    assert set(await backend.brokers()) == {"broker-a"}
    assert (await backend.route("orders")).brokers == ("broker-a",)


async def test_start_before_the_name_servers_succeeds(cluster: Cluster) -> None:
    port = free_port()
    await cluster.broker()
    backend = await cluster.backend(f"127.0.0.1:{port}")
    with pytest.raises(ServiceUnavailable):
        await ask(backend, SEND)
    with pytest.raises(ServiceUnavailable):
        await backend.route("orders")
    with pytest.raises(ServiceUnavailable):
        await backend.brokers()
    await cluster.name_server(port)
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_connected_broker_stays_while_a_restarted_name_server_lists_none(cluster: Cluster) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    await ask(backend, SEND)
    cluster.table = {}
    await backend.refresh_brokers()
    assert set(await backend.brokers()) == {"broker-a"}
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_concurrent_requests_to_an_unlisted_broker_share_one_refresh(cluster: Cluster) -> None:
    backend = await cluster.backend()
    await cluster.broker()
    await asyncio.gather(*(ask(backend, SEND) for _ in range(100)))
    assert len(cluster.names[0].received) == 2


# Membership over real connections.


async def test_broker_request_to_a_member_is_answered(cluster: Cluster) -> None:
    broker = await cluster.broker()

    def push(channel: FakeChannel, command: RemotingCommand) -> Reply:
        return channel.request(command, 1.0)

    backend = await cluster.backend(push=push)
    client = FakeChannel()
    client.session.client_id = "c1"
    groups = Groups(consumers=frozenset("g"))
    client.session.heartbeat = heartbeat("c1", {"g": ["orders"]})
    await backend.register(client, groups, ["broker-a"])
    assert broker.codes == [34]
    answer = await broker.connections[-1].request(request(307, consumerGroup="g", clientId="c1"), 5.0)
    assert answer.fields == {"answered by": "c1"}
    refused = await broker.connections[-1].request(request(307, consumerGroup="h", clientId="c1"), 5.0)
    assert refused.code == 206
    await backend.unregister(client, groups)
    assert broker.codes == [34, 35]


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
    channel.session.heartbeat = heartbeat(client_id, {group: ["orders"] for group in groups})
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
    assert {command.body for command in broker.received} == ({stays.session.heartbeat.body} if shared else set())  # type: ignore[union-attr]
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
    answer = await broker.connections[-1].request(request(40, consumerGroup="g"), 5.0)
    assert answer.code == 3


# Topics that a tool has deleted.


async def test_deleted_topic_is_removed_from_every_name_server(cluster: Cluster) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    first, second = await cluster.name_server(), await cluster.name_server()
    backend = await cluster.backend(first.address, second.address)
    await backend.route("orders")
    assert backend.cached_route("orders") is not None
    await backend.forget_topic("orders")
    for server in (first, second):
        assert server.codes.count(RequestCode.DELETE_TOPIC_IN_NAMESRV) == 1
    assert backend.cached_route("orders") is None
    with pytest.raises(TopicNotExist):
        await backend.route("orders")


async def test_name_server_that_keeps_a_deleted_topic_is_named(cluster: Cluster) -> None:
    stubborn = await cluster.server(lambda _: commands.response(1, remark="not now"))
    backend = await cluster.backend((await cluster.name_server()).address, stubborn.address)
    with pytest.raises(ServiceUnavailable, match=f"{stubborn.address} answered 1: not now"):
        await backend.forget_topic("orders")

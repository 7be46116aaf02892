import asyncio

import pytest

from proxy.backends.cluster import broker_table
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RequestTimeout, ServiceUnavailable
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.cluster_requests import (
    COMMIT,
    MASTER_ONLY,
    MAX_OFFSET,
    POP,
    PULL,
    SEND,
    SEND_BACK,
    ask,
    by,
    learn,
    silent,
)
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.fakes import FakeChannel, settle
from tests.proxy.messages import complete

pytestmark = pytest.mark.anyio


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
    backend.oneway(
        "broker-a",
        REQUESTS[COMMIT],
        complete(REQUESTS[COMMIT]),
        None,
    )
    await settle()
    assert backend.selector.diverted == {"unknown_broker": 2}


async def test_unlisted_broker_is_looked_up_at_most_once_a_second(cluster: Cluster) -> None:
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    asked = len(cluster.names[0].received)

    async def after(seconds: float) -> int:
        """Return the name server's request count after a request that comes `seconds` later."""
        backend._table._unknown = {name: since - seconds for name, since in backend._table._unknown.items()}
        with pytest.raises(ServiceUnavailable, match="no name server lists a broker broker-a"):
            await ask(backend, SEND)
        return len(cluster.names[0].received) - asked

    assert [await after(0.0) for _ in range(5)] == [1] * 5
    # Repeated requests do not postpone the next look-up.
    assert [await after(0.4) for _ in range(6)] == [1, 1, 2, 2, 2, 3]
    await cluster.broker("broker-a")
    backend._table._unknown.clear()
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_number_of_noted_unlisted_brokers_is_limited(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_table, "_MAX_UNKNOWN", 3)
    backend = await cluster.backend()
    for number in range(10):
        with pytest.raises(ServiceUnavailable):
            await backend.request(f"broker-{number}", REQUESTS[SEND], complete(REQUESTS[SEND]), 10.0, None)
        assert len(backend._table._unknown) <= 3


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


@pytest.mark.parametrize("code", MASTER_ONLY)
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


@pytest.mark.parametrize("code", MASTER_ONLY)
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
    backend._broker_options.wheel.advance()
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


@pytest.mark.parametrize("code", [SEND, PULL, POP, COMMIT])
async def test_requests_follow_a_broker_that_moves_to_another_address(cluster: Cluster, code: int) -> None:
    """As a pod that starts again elsewhere: the first request finds the former address closed."""
    former = await cluster.broker()
    backend = await cluster.backend()
    assert await by(ask(backend, code)) == "broker-a/0"
    former.stop()
    cluster.table["broker-a"] = {}
    moved = await cluster.broker()
    attempts = 0
    async with asyncio.timeout(30):
        while code not in moved.codes:
            attempts += 1
            try:
                await ask(backend, code)
            except (ConnectionLost, ServiceUnavailable):
                await asyncio.sleep(0.05)
    # The table is loaded again at the first failure, not at the next refresh.
    assert attempts < 10


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
        backend.oneway(
            "broker-a",
            REQUESTS[COMMIT],
            complete(REQUESTS[COMMIT], commitOffset=str(number)),
            client,
        )
    await ask(backend, RequestCode.QUERY_CONSUMER_OFFSET, client)
    assert broker.codes == [15] * 50 + [14]
    assert [int(c.fields["commitOffset"]) for c in broker.received[:50]] == list(range(50))
    assert all(c.is_oneway for c in broker.received[:50])


async def test_master_only_oneway_without_a_master_is_rejected(cluster: Cluster) -> None:
    await cluster.broker(number=1)
    backend = await cluster.backend()
    with pytest.raises(ServiceUnavailable):
        backend.oneway(
            "broker-a", REQUESTS[RequestCode.END_TRANSACTION], complete(REQUESTS[RequestCode.END_TRANSACTION]), None
        )
    assert backend.selector.diverted == {"no_master": 1}


async def test_oneway_to_a_new_broker_refreshes_the_table(cluster: Cluster) -> None:
    backend = await cluster.backend()
    broker = await cluster.broker()
    backend.oneway(
        "broker-a",
        REQUESTS[COMMIT],
        complete(REQUESTS[COMMIT]),
        None,
    )
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
            backend.oneway(
                "broker-a",
                REQUESTS[COMMIT],
                complete(REQUESTS[COMMIT]),
                client,
            )
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


async def test_a_broker_with_another_master_is_no_longer_avoided(cluster: Cluster) -> None:
    old = await cluster.broker(answer=silent)
    new = await cluster.broker(number=2)
    backend = await cluster.backend()
    backend._probes.unresponsive.add(old.address)
    await backend.refresh_brokers()
    assert backend.unresponsive_brokers == {"broker-a"}
    cluster.table["broker-a"] = {"0": new.address}
    await backend.refresh_brokers()
    assert backend.unresponsive_brokers == frozenset()


async def test_a_hanging_broker_that_is_not_listed_leaves_the_table(cluster: Cluster) -> None:
    hanging = await cluster.broker(answer=silent)
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    waiting = ask(backend, SEND)
    await hanging.until(lambda server: bool(server.received))
    del cluster.table["broker-a"]
    await backend.refresh_brokers()
    assert set(backend.broker_table) == {"broker-a", "broker-b"}, "a restarted name server lists no broker"
    backend._probes.unresponsive.add(hanging.address)
    await backend.refresh_brokers()
    assert set(backend.broker_table) == {"broker-b"}
    assert not waiting.done()
    waiting.cancel()


async def test_the_end_of_a_transaction_is_not_repeated(cluster: Cluster) -> None:
    """A broker stores the message of each commit, also of a second one."""

    def commit(_: RemotingCommand) -> None:
        asyncio.get_running_loop().call_soon(broker.cut)

    broker = await cluster.broker(answer=commit)
    backend = await cluster.backend()
    with pytest.raises(ConnectionLost):
        await ask(backend, RequestCode.END_TRANSACTION)
    assert broker.codes == [RequestCode.END_TRANSACTION]


async def test_oneway_requests_that_wait_for_a_look_up_are_bounded(cluster: Cluster) -> None:
    backend = await cluster.backend()
    spec = REQUESTS[SEND]
    for _ in range(40):
        command = complete(spec, n="broker-z")
        command.body, command.memory = b"x", 2**20
        backend.oneway("broker-z", spec, command, None)
    assert backend._searching_bytes == 16 * 2**20
    async with asyncio.timeout(30):
        while backend._searching_bytes:
            await asyncio.sleep(0.01)

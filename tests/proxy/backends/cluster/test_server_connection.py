import asyncio
from collections.abc import Callable

import pytest

from proxy.backends.cluster import server_connection as links
from proxy.backends.cluster.server_connection import ServerConnection, ServerOptions
from proxy.backends.cluster.server_turns import ServerTurns
from proxy.observability.metrics.upstream import UpstreamCounts
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost, RequestTimeout, ServiceUnavailable
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel
from tests.ports import HOST, free_port
from tests.proxy.backends.cluster.servers import Cluster, Server
from tests.proxy.fakes import Clock, FakeChannel, settle
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio

# A request code that the broker of these tests answers, and one that it does not answer.
ANSWERED, SILENT = 31, 30


def answer(command: RemotingCommand) -> RemotingCommand | None:
    return commands.success() if command.code == ANSWERED else None


class Bench:
    """A connection to a server; `lost` counts lost connections."""

    def __init__(self, address: str) -> None:
        self.clock = Clock()
        self.wheel = TimeoutWheel(self.clock)
        self.lost: list[ServerConnection] = []
        options = ServerOptions(self.wheel, 1.0, UpstreamCounts(), ServerTurns(asyncio.get_running_loop()))
        self.link = ServerConnection(address, options, lambda *_: None, self.lost.append)

    def ask(
        self,
        code: int,
        timeout: float = 60.0,
        lost: Callable[[RemotingCommand, Reply], None] | None = None,
    ) -> Reply:
        future: Reply = asyncio.get_running_loop().create_future()
        self.link.request(request(code), timeout, future, lost)
        return future

    async def connect(self) -> RemotingConnection:
        async with asyncio.timeout(30):
            await self.ask(ANSWERED)
        assert self.link.connection is not None
        return self.link.connection

    def pass_time(self, seconds: float) -> None:
        """Advance the time since the last received bytes."""
        if self.link.connection is not None:
            self.link.connection.read_at -= seconds
        self.clock.now += seconds
        self.wheel.advance()


@pytest.fixture
async def server(cluster: Cluster) -> Server:
    return await cluster.server(answer)


@pytest.fixture
async def bench(server: Server) -> Bench:
    return Bench(server.address)


async def test_congested_connection_is_still_read(bench: Bench) -> None:
    """A broker that cannot write stops reading: both sides would wait for each other."""
    connection, client = await bench.connect(), FakeChannel()
    connection.pause_writing()
    connection.pause_until_drained(client)
    assert connection.transport is not None
    assert connection.transport.is_reading()
    async with asyncio.timeout(30):
        await bench.ask(ANSWERED)
    assert client.pauses == 1
    connection.resume_writing()
    assert (client.pauses, connection.congested) == (0, False)
    assert connection.transport.is_reading()


async def test_silent_connection_is_closed_with_all_its_requests(bench: Bench, server: Server) -> None:
    connection = await bench.connect()
    repeated: list[RemotingCommand] = []

    def again(command: RemotingCommand, future: Reply) -> None:
        repeated.append(command)
        future.set_result(commands.success({"by": "another"}))

    late, other, repeatable = bench.ask(SILENT, 3.0), bench.ask(SILENT), bench.ask(SILENT, lost=again)
    bench.pass_time(2.9)
    assert not late.done()
    bench.pass_time(0.3)
    with pytest.raises(RequestTimeout):
        await late
    await settle()
    assert isinstance(other.exception(), ConnectionLost)
    assert repeatable.result().fields == {"by": "another"}
    assert len(repeated) == 1
    assert connection.cause is CloseCause.UNRESPONSIVE
    assert bench.lost == [bench.link]
    failed_at = bench.link.failed_at
    assert failed_at is not None
    # The next request opens a new connection.
    assert await bench.connect() is not connection
    assert bench.link.failed_at is None
    assert len(server.connections) == 2


async def test_timed_out_request_keeps_a_connection_that_receives_bytes(bench: Bench) -> None:
    connection = await bench.connect()
    late, other = bench.ask(SILENT, 3.0), bench.ask(SILENT)
    bench.pass_time(2.0)
    await bench.connect()
    bench.pass_time(1.2)
    with pytest.raises(RequestTimeout):
        await late
    await settle()
    assert not other.done()
    assert bench.link.connection is connection
    assert (bench.link.failed_at, bench.lost) == (None, [])


async def test_idle_connection_is_not_closed(bench: Bench) -> None:
    connection = await bench.connect()
    answered = bench.ask(ANSWERED, 3.0)
    async with asyncio.timeout(30):
        await answered
    bench.pass_time(600)
    await settle()
    assert bench.link.connection is connection


async def test_request_cancelled_while_connecting_is_not_sent(bench: Bench, server: Server) -> None:
    given_up = bench.ask(SILENT)
    given_up.cancel()
    await bench.connect()
    assert server.codes == [ANSWERED]


async def test_number_of_oneways_waiting_for_a_connection_is_limited(
    bench: Bench, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_MAX_WAITING", 3)
    for _ in range(5):
        bench.link.oneway(request(RequestCode.UPDATE_CONSUMER_OFFSET))
    await bench.connect()
    assert server.codes == [15, 15, 15, ANSWERED]


async def test_unreachable_server_is_reported(bench: Bench) -> None:
    bench = Bench(f"127.0.0.1:{free_port()}")
    with pytest.raises(ServiceUnavailable):
        await bench.ask(ANSWERED)
    assert bench.link.failed_at is not None
    assert bench.lost == []


async def test_a_request_that_cannot_be_encoded_does_not_affect_others_of_the_same_dial(bench: Bench) -> None:
    nested: list[object] = []
    for _ in range(300):
        nested = [nested]
    broken = request(ANSWERED)
    broken.header["odd"] = nested
    futures: list[Reply] = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for future, command in zip(futures, (request(ANSWERED), broken, request(ANSWERED)), strict=True):
        bench.link.request(command, 60.0, future)
    oneway = request(ANSWERED)
    oneway.header["odd"] = nested
    bench.link.oneway(oneway)
    last = bench.ask(ANSWERED)
    async with asyncio.timeout(30):
        replies = await asyncio.gather(*futures, last, return_exceptions=True)
    assert [isinstance(reply, RemotingCommand) for reply in replies] == [True, False, True, True]
    assert isinstance(replies[1], TypeError)


async def test_oneway_requests_that_wait_for_a_connection_are_bounded(cluster: Cluster) -> None:
    server = await cluster.server(answer)
    bench = Bench(server.address)
    for _ in range(40):
        command = request(ANSWERED, b"x", True)
        command.memory = 2**20
        bench.link.oneway(command)
    await bench.connect()
    assert len(server.received) == 16 + 1
    bench.link.oneway(request(ANSWERED, b"x", True))
    await server.until(lambda server: len(server.received) == 18)


async def test_oneway_requests_to_a_server_that_does_not_read_are_bounded() -> None:
    """Each of thousands of clients may send one before it is paused."""
    accepted: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        accepted.append(writer)

    async with await asyncio.start_server(accept, HOST, 0) as server:
        bench = Bench(f"{HOST}:{server.sockets[0].getsockname()[1]}")
        reply = bench.ask(SILENT)
        async with asyncio.timeout(30):
            while bench.link.connection is None:
                await asyncio.sleep(0.01)
        connection = bench.link.connection
        for _ in range(64):
            bench.link.oneway(request(SILENT, bytes(2**20), True))
            await asyncio.sleep(0)
        assert links.MAX_ONEWAY_BYTES <= connection.unread_bytes <= links.MAX_ONEWAY_BYTES + 2**21
        connection.abort(CloseCause.LOCAL)
        with pytest.raises(ConnectionLost):
            await reply
        for writer in accepted:
            writer.close()

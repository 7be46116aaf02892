"""Brokers that hang: at the level of connections, and before brokers in this process that do not answer."""

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from proxy.backends.cluster import backend as backends
from proxy.backends.cluster.broker_probes import BrokerProbes
from proxy.backends.cluster.server_connection import ServerConnection
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster, running
from tests.proxy.messages import complete

pytestmark = pytest.mark.anyio

_HEARTBEAT = RequestCode.HEART_BEAT


@dataclass
class FakeConnection:
    """An open connection. read_at: time of the last byte, or of the opening."""

    read_at: float = 0.0
    received_bytes: int = 100
    pending: int = 1


@dataclass(eq=False)
class FakeServer:
    address: str
    connection: FakeConnection | None = field(default_factory=FakeConnection)
    dialling_since: float | None = None


class Checks:
    """Checks of some servers once per second of a clock."""

    def __init__(self, *addresses: str) -> None:
        self.now = 0.0
        self.servers = [FakeServer(address) for address in addresses]
        self.probed: list[tuple[float, str]] = []
        self.probes = BrokerProbes(lambda: self.now, self._probe)

    def _probe(self, server: ServerConnection) -> None:
        self.probed.append((self.now, server.address))

    def run(self, seconds: int, answering: tuple[str, ...] = ()) -> set[str]:
        """Let some seconds pass, in which some addresses send bytes; return the unresponsive addresses."""
        for _ in range(seconds):
            self.now += 1
            for server in self.servers:
                if server.address in answering and server.connection is not None:
                    server.connection.read_at = self.now
            self.check()
        return self.probes.unresponsive

    def check(self) -> None:
        self.probes.check(self.servers)  # type: ignore[arg-type]  # they have what a check reads


async def test_a_broker_that_sends_nothing_while_requests_wait_is_unresponsive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks = Checks("a", "b")
    assert checks.run(2, answering=("b",)) == set()
    assert checks.probed == [(2.0, "a")]
    with caplog.at_level(logging.INFO, "gantry.cluster"):
        assert checks.run(1, answering=("b",)) == {"a"}
        assert checks.run(60, answering=("b",)) == {"a"}
        assert checks.run(1, answering=("a", "b")) == set()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the broker a does not answer",
        "the broker a answers again, or is not listed any more",
    ]
    assert len(checks.probed) < 10


async def test_a_reply_to_the_heartbeat_suffices_while_polls_wait() -> None:
    checks = Checks("a")
    for _ in range(10):
        assert checks.run(2) == set()
        assert checks.run(1, answering=("a",)) == set()
    assert len(checks.probed) >= 9


async def test_connections_without_requests_are_not_probed() -> None:
    checks = Checks("a")
    checks.servers[0].connection = FakeConnection(pending=0)
    assert checks.run(10) == set()
    checks.servers[0].connection = None
    assert checks.run(10) == set()
    assert checks.probed == []


async def test_one_connection_that_reads_speaks_for_its_broker() -> None:
    checks = Checks("a", "a")
    checks.run(3)
    assert checks.probes.unresponsive == {"a"}
    connection = checks.servers[1].connection
    assert connection is not None
    connection.read_at = 3.5
    assert checks.run(1) == set()


async def test_a_silent_connection_beside_a_busy_one_is_no_hung_broker() -> None:
    """Its path is lost, not the broker."""
    checks = Checks("a", "a")
    busy = checks.servers[1].connection
    assert busy is not None
    for _ in range(20):
        checks.now += 1
        busy.read_at = checks.now
        checks.check()
        assert checks.probes.unresponsive == set()
    assert checks.probed
    # The broker hangs, too: the busy connection becomes silent.
    assert checks.run(4) == {"a"}


async def test_a_new_connection_is_no_answer() -> None:
    """The system accepts connections to a stopped process."""
    checks = Checks("a")
    assert checks.run(3) == {"a"}
    checks.servers[0].connection = None
    assert checks.run(2) == {"a"}
    checks.servers[0].connection = FakeConnection(read_at=checks.now, received_bytes=0, pending=0)
    assert checks.run(20) == {"a"}
    assert len(checks.probed) > 3


async def test_a_broker_to_which_no_connection_can_be_opened_is_unresponsive() -> None:
    """As of a host that has vanished: nothing refuses the connection."""
    checks = Checks("a")
    checks.servers[0].connection, checks.servers[0].dialling_since = None, 0.0
    assert checks.run(2) == set()
    assert checks.run(1) == {"a"}


async def test_a_broker_that_is_not_listed_any_more_is_forgotten() -> None:
    checks = Checks("a")
    assert checks.run(3) == {"a"}
    checks.servers.clear()
    assert checks.run(1) == set()


async def test_the_backend_names_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = True

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        return None if hangs else commands.success()

    monkeypatch.setattr(backends, "CHECK_SECONDS", 0.2)
    async with running() as cluster:
        broker = await cluster.broker("broker-a", answer=answer)
        await cluster.broker("broker-b")
        backend = await cluster.backend()
        named: list[str] = []
        backend.on_unresponsive.append(named.append)
        serving = asyncio.ensure_future(backend.run())
        try:
            for name in ("broker-a", "broker-b"):
                await _send(cluster, name, wait=name == "broker-b")
            async with asyncio.timeout(30):
                while backend.unresponsive_brokers != {"broker-a"}:
                    await asyncio.sleep(0.05)
                hangs = False
                assert named == ["broker-a"]
                assert _HEARTBEAT in broker.codes
                # A heartbeat before it was repeated has no reply: the next one does.
                await _send(cluster, "broker-a", wait=True)
                while backend.unresponsive_brokers:
                    await asyncio.sleep(0.05)
        finally:
            serving.cancel()


async def _send(cluster: Cluster, broker: str, wait: bool) -> None:
    spec = REQUESTS[RequestCode.SEND_MESSAGE_V2]
    reply = cluster.backends[0].request(broker, spec, complete(spec), 60.0, None)
    if wait:
        await reply
    else:
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())

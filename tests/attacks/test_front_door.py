"""Connections that hold places in the negotiation: silent, in a TLS handshake, or behind a PROXY header."""

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.frame import FrameDecoder
from tests.attacks.good_client import observed
from tests.benchmark.processes import rss_mb
from tests.cluster.client import unique
from tests.cluster.servers import HOST, Gantry, eventually
from tests.cpu_use import CpuUse, CpuWaits, counting_waits
from tests.ports import free_port
from tests.protocol_negotiation.authority import Authority
from tests.protocol_negotiation.samples import PROXY_V1, client_hello

pytestmark = pytest.mark.anyio

# Other addresses of the loopback network.
ATTACKER, LOAD_BALANCER = "127.0.0.2", "127.0.0.3"
_TIMEOUT = 2.0
_QUERY_ROUTE = "/apache.rocketmq.v2.MessagingService/QueryRoute"
_ROUTE_REQUEST = commands.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "no-such-topic"}).encode()


def _configured(directory: Path, listen: str, more: str = "") -> Gantry:
    """Return a replica on an embedded broker with one listener, whose settings are `listen`."""
    port = free_port()
    config = (
        f'drain_timeout = 0.5\n[[listen]]\naddress = "{HOST}:{port}"\n{listen}\n'
        f'[limits]\nnegotiation_timeout = {_TIMEOUT}\n[embedded]\ndirectory = "{directory / "broker"}"\n'
        f'[admin]\nlisten = "off"\n{more}'
    )
    return Gantry(directory, "", config, port=port, listen=False)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Gantry]:
    """Run a replica that accepts PROXY headers from `LOAD_BALANCER`, with ten connections per address."""
    with _configured(tmp_path, f'trusted_proxies = ["{LOAD_BALANCER}"]\nmax_connections_per_address = 10') as gantry:
        yield gantry


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Gantry]:
    """Run a replica with 100 connections per address."""
    with _configured(tmp_path, "max_connections_per_address = 100") as gantry:
        yield gantry


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[Gantry]:
    """Run a replica that is started with a soft limit of 512 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _configured(tmp_path, "") as gantry:
        gantry.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        try:
            gantry.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield gantry


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Gantry]:
    """Run a replica with TLS and default limits."""
    files = Authority(tmp_path).files()
    tls = f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
    with _configured(tmp_path, "", tls) as gantry:
        yield gantry


@asynccontextmanager
async def _attacking(port: int, count: int, data: bytes, source: str) -> AsyncIterator[list[socket.socket]]:
    """Open connections from a source address and send `data` on each; close them at the end."""
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            connection = socket.socket()
            sockets.append(connection)
            connection.setblocking(False)
            connection.bind((source, 0))
            await loop.sock_connect(connection, (HOST, port))
            if data:
                await loop.sock_sendall(connection, data)
            if number % 100 == 99:
                await asyncio.sleep(0)
        yield sockets
    finally:
        for connection in sockets:
            connection.close()


async def _closed(connections: list[socket.socket], pid: int, timeout: float = 5 * _TIMEOUT) -> None:
    """Wait until the server has closed all connections; fail if that takes longer than `timeout` without other work."""
    loop = asyncio.get_running_loop()
    used = CpuUse(pid)
    async with asyncio.timeout(10 * timeout):
        for connection in connections:
            try:
                while await loop.sock_recv(connection, 65_536):
                    pass
            except ConnectionError:
                pass
    assert used.seconds <= used.lengthen(timeout)


async def _answer(port: int, source: str, before: bytes = b"") -> int:
    """Send a request for an unknown topic's route on a connection from a source; return the response code.

    before: bytes before the request.
    """
    async with asyncio.timeout(45):
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
        writer.write(before + _ROUTE_REQUEST)
        length = await reader.readexactly(4)
        (frame,) = FrameDecoder().feed(length + await reader.readexactly(int.from_bytes(length)))
    writer.transport.abort()
    return commands.decode(frame).code


async def _handshake_seconds(port: int, waits: CpuWaits) -> float:
    """Open a connection over TLS, without verification, and close it.

    Return the seconds of its opening without those for which the server or the test waited for a processor.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    waits.restart()
    start = time.monotonic()
    async with asyncio.timeout(45):
        _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    seconds = time.monotonic() - start - waits.elapsed()
    writer.transport.abort()
    return seconds


@pytest.mark.complete
async def test_silent_connections_from_one_address(replica: Gantry) -> None:
    """2,000 connections that send nothing; new connections are served meanwhile, and the silent ones end."""
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        _attacking(replica.port, 2_000, b"", HOST) as sockets,
    ):
        assert await _answer(replica.port, HOST) == ResponseCode.TOPIC_NOT_EXIST
        await _closed(sockets, replica.pid, timeout=30.0)
    observation.check(growth=40)


@pytest.mark.complete
async def test_silent_connections_above_the_soft_limit_of_files(few_files: Gantry) -> None:
    """1,000 connections, while the process was started with a soft limit of 512 files."""
    async with (
        observed(few_files.address, few_files.pid, unique("good")) as observation,
        _attacking(few_files.port, 1_000, b"", HOST),
    ):
        assert await _answer(few_files.port, HOST) == ResponseCode.TOPIC_NOT_EXIST
    observation.check(growth=40)


async def test_silent_connections_over_the_limit_of_their_address(bounded: Gantry) -> None:
    """2,000 connections of which 100 are allowed: the others end before the deadline; other addresses are served."""
    async with (
        observed(bounded.address, bounded.pid, unique("good")) as observation,
        _attacking(bounded.port, 2_000, b"", ATTACKER) as sockets,
    ):
        await _closed(sockets[100:], bounded.pid)
        assert await _answer(bounded.port, HOST) == ResponseCode.TOPIC_NOT_EXIST
        await _closed(sockets, bounded.pid)
        assert await _answer(bounded.port, ATTACKER) == ResponseCode.TOPIC_NOT_EXIST
    observation.check(growth=20)


async def test_requests_over_the_limit_of_their_address_are_answered(bounded: Gantry) -> None:
    """Remoting clients get FLOW_CONTROL, gRPC clients RESOURCE_EXHAUSTED, and the connection closes."""
    async with _attacking(bounded.port, 100, _ROUTE_REQUEST, HOST):
        assert await _answer(bounded.port, HOST) == ResponseCode.FLOW_CONTROL
        async with grpc.aio.insecure_channel(bounded.address) as channel:
            query: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_QUERY_ROUTE)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await query(b"")
            assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert raised.value.details() == "connection limit of 100 per address reached"
    await eventually(lambda: f"address_limit from {HOST}" in bounded.log.read_text(), "the line of the log")


async def test_half_done_tls_handshakes(encrypted: Gantry) -> None:
    """500 connections that stop in the TLS handshake hold a quarter of the slots; others complete theirs."""
    before = rss_mb(encrypted.pid)
    async with (
        observed(encrypted.address, encrypted.pid, unique("good")) as observation,
        _attacking(encrypted.port, 500, client_hello(), ATTACKER) as sockets,
    ):
        async with counting_waits(encrypted.pid) as waits:
            delays = [await _handshake_seconds(encrypted.port, waits) for _ in range(5)]
        await _closed(sockets, encrypted.pid)
    assert max(delays) <= observation.allowed(1.0), delays
    observation.check(growth=20)
    assert rss_mb(encrypted.pid) - before < 20


async def test_dripped_tls_handshake_ends_at_the_deadline(encrypted: Gantry) -> None:
    """A ClientHello at a byte per 0.1 s does not move the deadline."""
    async with observed(encrypted.address, encrypted.pid, unique("good")) as observation:
        await _drip(encrypted.port, client_hello(), HOST)
    observation.check(growth=10)


@pytest.mark.parametrize("header", [PROXY_V1, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x40\x00"], ids=["v1", "v2"])
async def test_dripped_proxy_headers_from_a_trusted_network(proxied: Gantry, header: bytes) -> None:
    """200 PROXY headers at a byte per second end at the deadline."""
    async with observed(proxied.address, proxied.pid, unique("good")) as observation, asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(_drip(proxied.port, header + bytes(100), LOAD_BALANCER, period=1.0))
    observation.check(growth=10)


async def test_connections_of_one_client_behind_a_trusted_proxy(proxied: Gantry) -> None:
    """50 connections that name one client's address: ten are served, and so are the proxy's other clients."""
    attack = b"PROXY TCP4 192.0.2.66 198.51.100.9 4711 8080\r\n"
    async with (
        observed(proxied.address, proxied.pid, unique("good")) as observation,
        _attacking(proxied.port, 50, attack + _ROUTE_REQUEST, LOAD_BALANCER) as sockets,
    ):
        await _closed(sockets[10:], proxied.pid)
        good = b"PROXY TCP4 192.0.2.67 198.51.100.9 4711 8080\r\n"
        assert await _answer(proxied.port, LOAD_BALANCER, good) == ResponseCode.TOPIC_NOT_EXIST
        assert await _answer(proxied.port, LOAD_BALANCER) == ResponseCode.TOPIC_NOT_EXIST
        assert await _answer(proxied.port, LOAD_BALANCER, attack) == ResponseCode.FLOW_CONTROL
    observation.check(growth=10)


async def _drip(port: int, data: bytes, source: str, period: float = 0.1) -> None:
    """Send one byte per period until the server closes; fail if that takes many more periods than the deadline.

    The periods are counted, which a stall of the machine does not add to.
    """
    sent = 0
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    closed = asyncio.ensure_future(reader.read())
    for byte in data:
        writer.write(bytes((byte,)))
        sent += 1
        await asyncio.wait([closed], timeout=period)
        if closed.done():
            break
    else:
        closed.cancel()
        raise AssertionError("the connection is still open")
    await asyncio.gather(closed, return_exceptions=True)
    writer.transport.abort()
    assert sent * period < 3 * _TIMEOUT

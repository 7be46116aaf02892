"""Hostile clients of the admin API and of plain HTTP, with a good client of the port beside them."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.codes import RequestCode
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import observed, send_fields
from tests.attacks.replicas import Baseline, deployed, wait_until_ready
from tests.cluster.client import Client, unique
from tests.cluster.servers import HOST, Gantry
from tests.ports import free_port
from tests.protocol_negotiation.authority import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture
def admin_port() -> int:
    """The port of the admin API."""
    return free_port()


@pytest.fixture
def administered(tmp_path: Path, admin_port: int) -> Iterator[Gantry]:
    """Run a replica with an admin API that gives requests two seconds, and with TLS."""
    files = Authority(tmp_path).files()
    admin = f'[admin]\nlisten = "{HOST}:{admin_port}"\ntimeout = 2\n'
    tls = f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
    with deployed(Deployment.EMBEDDED, tmp_path, more=admin + tls) as gantry:
        wait_until_ready(gantry, Deployment.EMBEDDED)
        # The admin API is imported once clients are served.
        assert _healthy(admin_port)
        baseline = Baseline(gantry.pid)
        yield gantry
        baseline.wait_for_release()


def _requests(port: int, requests: list[bytes], seconds: float, drip: bytes = b"") -> list[bytes]:
    """Open a connection for each request, send `drip` on each five times a second, and return what each receives."""
    connections = [socket.create_connection((HOST, port), 10) for _ in requests]
    received = [b""] * len(connections)
    for connection, request in zip(connections, requests, strict=True):
        connection.setblocking(False)
        _try_send(connection, request)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.2)
        for number, connection in enumerate(connections):
            _try_send(connection, drip)
            try:
                received[number] += connection.recv(65_536)
            except OSError:
                continue
    for connection in connections:
        connection.close()
    return received


def _try_send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.send(data)
    except OSError:
        return


@pytest.mark.complete
async def test_slow_headers_at_the_admin_api(administered: Gantry, admin_port: int) -> None:
    """500 connections send a header line five times a second, and never the end of the head."""
    async with observed(administered.address, administered.pid, unique("good")) as observation:
        await asyncio.to_thread(_requests, admin_port, [b"GET /v1/state HTTP/1.1\r\n"] * 500, 4.0, b"x: y\r\n")
        assert await asyncio.to_thread(_healthy, admin_port)
    observation.check(growth=48)


async def test_slow_and_large_bodies_at_the_admin_api(administered: Gantry, admin_port: int) -> None:
    """Bodies that are announced with 1 GiB, chunked without end, or nested 100,000 deep."""
    head = b"POST /v1/drain HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    nested = b"[" * 30_000 + b"]" * 30_000
    requests = [
        head + b"content-length: 1073741824\r\n\r\n" + bytes(1 << 20),
        head + b"transfer-encoding: chunked\r\n\r\n" + (b"10000\r\n" + bytes(65_536) + b"\r\n") * 16,
        head + b"content-length: %d\r\n\r\n" % len(nested) + nested,
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % number for number in range(20_000)),
    ]
    async with observed(administered.address, administered.pid, unique("good")) as observation:
        await asyncio.to_thread(_requests, admin_port, requests * 10, 3.0, bytes(16_384))
        assert await asyncio.to_thread(_healthy, admin_port)
    observation.check(growth=44)


@pytest.mark.complete
async def test_expensive_queries_at_the_admin_api(administered: Gantry, admin_port: int) -> None:
    """200 callers list messages that match nothing, lists and metrics, and 200 more close their connection at once."""
    topic = unique("large")
    async with Client(administered.address) as client:
        for queue in range(1_000):
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue % 4), b"m")).code == 0
    paths = [f"/v1/topics/{topic}/messages?limit=200&tag=none", "/v1/topics?limit=1000", "/metrics", "/v1/live"]
    requests = [f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() for path in paths] * 50
    async with observed(administered.address, administered.pid, unique("good")) as observation:
        await asyncio.to_thread(_requests, admin_port, requests, 0.2)
        await asyncio.to_thread(_requests, admin_port, requests, 5.0)
    observation.check(growth=64, stall=0.3)


@pytest.mark.complete
async def test_many_live_streams_at_the_admin_api(administered: Gantry, admin_port: int) -> None:
    """200 taps, whose events nobody reads."""
    tap = b"GET /v1/tap HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"
    async with observed(administered.address, administered.pid, unique("good")) as observation:
        received = await asyncio.to_thread(_requests, admin_port, [tap] * 200, 3.0)
    assert sum(b" 200 " in text.partition(b"\r\n")[0] for text in received) <= 8
    observation.check(growth=48)


@pytest.mark.complete
async def test_plain_http_at_the_port(administered: Gantry) -> None:
    """Heads that do not end, and thousands of fields, where only health checks are expected."""
    requests = [b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"GET /" + b"x" * 500_000, b"POST / HTTP/1.1\r\n"]
    async with observed(administered.address, administered.pid, unique("good")) as observation:
        await asyncio.to_thread(_requests, administered.port, requests * 50, 3.0, b"x: y\r\n" * 100)
    observation.check(growth=48)


@pytest.mark.complete
async def test_continuous_tls_handshakes(administered: Gantry) -> None:
    """Two threads make full handshakes for three seconds."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    ended = threading.Event()

    def attack() -> int:
        count = 0
        while not ended.is_set():
            try:
                with context.wrap_socket(socket.create_connection((HOST, administered.port), 10)):
                    count += 1
            except OSError:
                continue
        return count

    async with observed(administered.address, administered.pid, unique("good")) as observation:
        attacks = [asyncio.create_task(asyncio.to_thread(attack)) for _ in range(2)]
        await asyncio.sleep(3)
        ended.set()
        counts = await asyncio.gather(*attacks)
    assert sum(counts) > 0
    observation.check(growth=32)


def _healthy(port: int) -> bool:
    """Return whether the admin API responds on one of the new connections within two minutes."""
    request = b"GET /v1/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 20) as connection:
            connection.sendall(request)
            if b"HTTP/1.1" in connection.recv(65_536):
                return True
        time.sleep(0.1)
    return False

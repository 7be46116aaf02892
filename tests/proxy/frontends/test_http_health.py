"""Health on the clients' port: the sans-io half byte by byte, and raw sockets through a replica."""

import asyncio
import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_negotiation.http1_rejection import misdirected
from proxy.core.health import Aspect, Check, Health, Report
from proxy.frontends.http_health import Responder
from proxy.observability.metrics.process import product_version
from tests.proxy.admin.http.kit import Replica, replica

GET = b"GET /readyz HTTP/1.1\r\nHost: rocketmq.test\r\n\r\n"
CHECKS = (Check(Aspect.BACKEND, "fail", "no broker is known"),)
REPORTS = {
    "/livez": Report("pass", ()),
    "/healthz": Report("pass", ()),
    "/readyz": Report("fail", CHECKS),
}
ALIVE = b'{"status":"pass","checks":{}}'
NOT_READY = b'{"status":"fail","checks":{"backend":{"status":"fail","reason":"no broker is known"}}}'


def responder() -> Responder:
    return Responder(REPORTS.__getitem__, lambda: 0.0)


def answer(status: bytes, body: bytes, connection: bytes = b"keep-alive", bare: bool = False) -> bytes:
    head = (
        b"HTTP/1.1 %s\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: gantry/%s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nCache-Control: no-store\r\nConnection: %s\r\n\r\n"
    ) % (status, product_version().encode(), len(body), connection)
    return head if bare else head + body


UNREADY = answer(b"503 Service Unavailable", NOT_READY)
LIVE = answer(b"200 OK", ALIVE)

# A request, its answer, and whether the connection stays.
SERVED = {
    "get": (GET, UNREADY, True),
    "head": (
        b"HEAD /readyz HTTP/1.1\r\nHost: a\r\n\r\n",
        answer(b"503 Service Unavailable", NOT_READY, bare=True),
        True,
    ),
    "alive": (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "without Host": (b"GET /livez HTTP/1.1\r\n\r\n", LIVE, True),
    "query": (b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "absolute": (b"GET http://a:8080/livez HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "close": (b"GET /livez HTTP/1.1\r\nConnection: Close\r\n\r\n", answer(b"200 OK", ALIVE, b"close"), False),
    "1.0": (b"GET /livez HTTP/1.0\r\n\r\n", answer(b"200 OK", ALIVE, b"close"), False),
    "1.0 kept": (b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", LIVE, True),
    "no content": (b"GET /livez HTTP/1.1\r\nContent-Length: 0\r\n\r\n", LIVE, True),
    "content": (b"GET /livez HTTP/1.1\r\nContent-Length: 5\r\n\r\n", answer(b"200 OK", ALIVE, b"close"), False),
    "chunks": (b"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", answer(b"200 OK", ALIVE, b"close"), False),
}
REFUSED = (
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/connections HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /readyzz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /readyz/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET  /readyz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /readyz HTTP/1.2\r\nHost: a\r\n\r\n",
    b"GET /readyz HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET /readyz\r\n\r\n",
    b"GET /readyz HTTP/1.1\nHost: a\n\n" + b"\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
    b"POST /v1/drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
)


@pytest.mark.parametrize("name", SERVED)
def test_a_question_is_answered_however_it_is_cut(name: str) -> None:
    request, wanted, stays = SERVED[name]
    whole = responder()
    assert whole.receive(request) == wanted
    assert whole.closing is not stays
    for cut in range(1, len(request)):
        halves = responder()
        assert halves.receive(request[:cut]) + halves.receive(request[cut:]) == wanted, request[:cut]
    bits = responder()
    assert b"".join(bits.receive(request[at : at + 1]) for at in range(len(request))) == wanted


@pytest.mark.parametrize("request_", REFUSED)
def test_everything_else_is_refused_as_ever(request_: bytes) -> None:
    whole = responder()
    assert whole.receive(request_) == misdirected(request_)
    assert whole.closing
    assert whole.receive(GET) == b""
    bits = responder()
    told = b"".join(bits.receive(request_[at : at + 1]) for at in range(len(request_)))
    assert told == misdirected(request_)


@pytest.mark.parametrize("start", [b"GET /x", b"GET /readyzz", b"POST /v1", b"GET /readyz HTTP/1.1\r\n" + b"x" * 9000])
def test_a_refusal_does_not_wait_for_the_rest(start: bytes) -> None:
    assert responder().receive(start) == misdirected(start)


def test_a_method_that_means_nothing_is_told_so() -> None:
    http = responder()
    told = http.receive(b"DELETE /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nContent-Type: application/problem+json\r\n" in told
    assert b"\r\nAllow: GET, HEAD\r\n" in told
    assert http.closing


def test_requests_may_come_together_and_in_pieces() -> None:
    alive = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
    http = responder()
    assert http.receive(GET + alive + GET[:10]) == UNREADY + LIVE
    assert http.receive(GET[10:]) == UNREADY
    assert http.receive(alive + b"GET /admin HTTP/1.1\r\n\r\n" + alive) == LIVE + misdirected(b"GET /admin")
    assert http.closing


def test_each_path_is_looked_at_once_for_what_comes_together() -> None:
    looks: list[str] = []

    def look(path: str) -> Report:
        looks.append(path)
        return REPORTS[path]

    assert Responder(look, lambda: 0.0).receive(GET * 50) == UNREADY * 50
    assert looks == ["/readyz"]


def test_what_comes_together_has_its_bounds() -> None:
    """A flood of questions in one packet is no check of health, and would keep everybody else waiting."""
    http = responder()
    told = http.receive(GET * 10_000)
    assert told.startswith(UNREADY * 63)
    assert told.count(b"HTTP/1.1 503 ") == 64
    assert told.count(b"\r\nConnection: close\r\n") == 1
    assert http.closing


@given(st.binary(max_size=60), st.lists(st.integers(0, 120), max_size=5))
def test_garbage_is_answered_or_waited_for(garbage: bytes, cuts: list[int]) -> None:
    data = b"GET /readyz HTTP/1.1\r\n" + garbage
    http = responder()
    told = b"".join(map(http.receive, _pieces(data, cuts)))
    assert not told or told.startswith(b"HTTP/1.1 ")
    assert told.count(b"HTTP/1.1 421") <= 1


def _pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(marks):
        yield data[start:end]


def test_a_forced_failure_fails_all_but_life() -> None:
    health = Health(lambda: [Check(Aspect.DRAIN, "fail", "going"), Check(Aspect.NAME_SERVERS, "warn", "one is lost")])
    assert (health.report("/healthz").status, health.report("/readyz").status) == ("warn", "fail")
    health.forced = "a test"
    assert health.report("/healthz").http_status == 503
    assert health.report("/livez").http_status == 200


# Through a replica.


@pytest.fixture(scope="module")
async def running(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with replica(tmp_path_factory.mktemp("embedded"), limits={"negotiation_timeout": 5.0}) as shared:
        yield shared


async def exchange(running: Replica, *parts: bytes) -> bytes:
    """What the clients' port says to these bytes, until it closes."""
    host, _, port = running.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        told = await reader.read()
    writer.close()
    return told


LAST = b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"


@pytest.mark.anyio
async def test_the_clients_port_tells_health_byte_by_byte(running: Replica) -> None:
    told = await exchange(running, *(LAST[at : at + 1] for at in range(len(LAST))))
    date = re.search(rb"Date: (.*)\r\n", told)
    assert date is not None
    assert abs(parsedate_to_datetime(date[1].decode()).timestamp() - time.time()) < 30
    assert told.replace(date[1], b"Thu, 01 Jan 1970 00:00:00 GMT") == answer(b"200 OK", ALIVE, b"close")


@pytest.mark.anyio
async def test_the_clients_port_keeps_connections(running: Replica) -> None:
    told = await exchange(running, b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", b"HEAD /healthz HTTP/1.1\r\n\r\n" + LAST)
    first, second, third = told.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b'"drain":{"status":"pass"' in first
    assert second.endswith(b"Connection: keep-alive\r\n\r\n")
    assert third.endswith(ALIVE)


@pytest.mark.anyio
@pytest.mark.parametrize("path", [b"/v1/connections", b"/metrics", b"/", b"/v1/drain"])
async def test_the_clients_port_never_shows_the_rest(running: Replica, path: bytes) -> None:
    told = await exchange(
        running, b"GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a-token-for-writers\r\n\r\n" % path
    )
    assert told.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")


@pytest.mark.anyio
async def test_an_http_client_that_says_nothing_more_is_left(running: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.frontends.http_health._TIMEOUT", 0.05)
    assert await exchange(running, b"GET /readyz HTTP/1.1\r\nHost: a\r\n") == b""


@pytest.mark.anyio
async def test_a_replica_without_an_admin_api_tells_health_too(tmp_path: Path) -> None:
    # `replica` needs the API; this is the same without.
    from proxy.app import App
    from proxy.settings.model import Settings

    app = App(
        Settings(listen=["127.0.0.1:0"], embedded={"directory": tmp_path}, admin={"listen": "off"}, drain_timeout=0)
    )
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    try:
        async with asyncio.timeout(30):
            await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        assert app.admin.url is None
        assert app.admin.addresses == []
    finally:
        stop.set()
        await serving

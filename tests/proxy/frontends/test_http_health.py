"""Health checks on the clients' port: the sans-io responder byte by byte, and raw sockets to a replica."""

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

from protocol_negotiation.rejection import misdirected_response
from proxy.core.health import Aspect, Check, Health, Report
from proxy.frontends.http_health import HealthResponder
from proxy.observability.metrics.process import product_version
from proxy.settings.model import Settings
from tests.proxy.admin.http.replicas import Replica, replica
from tests.proxy.replica import running as serving

GET = b"GET /readyz HTTP/1.1\r\nHost: rocketmq.test\r\n\r\n"
CHECKS = (Check(Aspect.BACKEND, "fail", "no broker is known"),)
REPORTS = {
    "/livez": Report("pass", ()),
    "/healthz": Report("pass", ()),
    "/readyz": Report("fail", CHECKS),
}
ALIVE = b'{"status":"pass","checks":{}}'
NOT_READY = b'{"status":"fail","checks":{"backend":{"status":"fail","reason":"no broker is known"}}}'


def responder() -> HealthResponder:
    return HealthResponder(REPORTS.__getitem__, lambda: 0.0)


def response(status: bytes, body: bytes, connection: bytes = b"keep-alive", head_only: bool = False) -> bytes:
    head = (
        b"HTTP/1.1 %s\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: gantry/%s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nCache-Control: no-store\r\nConnection: %s\r\n\r\n"
    ) % (status, product_version().encode(), len(body), connection)
    return head if head_only else head + body


UNREADY = response(b"503 Service Unavailable", NOT_READY)
LIVE = response(b"200 OK", ALIVE)

# A request, its response, and whether the connection stays open.
SERVED = {
    "get": (GET, UNREADY, True),
    "head": (
        b"HEAD /readyz HTTP/1.1\r\nHost: a\r\n\r\n",
        response(b"503 Service Unavailable", NOT_READY, head_only=True),
        True,
    ),
    "alive": (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "without Host": (b"GET /livez HTTP/1.1\r\n\r\n", LIVE, True),
    "query": (b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "absolute": (b"GET http://a:8080/livez HTTP/1.1\r\nHost: a\r\n\r\n", LIVE, True),
    "absolute, upper case": (b"GET HTTPS://a/livez?x HTTP/1.1\r\nHOST: a\r\n\r\n", LIVE, True),
    "close": (b"GET /livez HTTP/1.1\r\nConnection: Close\r\n\r\n", response(b"200 OK", ALIVE, b"close"), False),
    "1.0": (b"GET /livez HTTP/1.0\r\n\r\n", response(b"200 OK", ALIVE, b"close"), False),
    "1.0 with keep-alive": (b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", LIVE, True),
    "no content": (b"GET /livez HTTP/1.1\r\nContent-Length: 0\r\n\r\n", LIVE, True),
    "content": (b"GET /livez HTTP/1.1\r\nContent-Length: 5\r\n\r\n", response(b"200 OK", ALIVE, b"close"), False),
    "chunks": (
        b"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        response(b"200 OK", ALIVE, b"close"),
        False,
    ),
}
REJECTED = (
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
    b"GET /readyz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a?/livez HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nX: a\x01b\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nX: a\nY: b\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
    b"POST /v1/drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
)


@pytest.mark.parametrize("name", SERVED)
def test_a_health_check_is_answered_whole_and_in_pieces(name: str) -> None:
    request, expected, keep_alive = SERVED[name]
    whole = responder()
    assert whole.receive(request) == expected
    assert whole.closing is not keep_alive
    for cut in range(1, len(request)):
        halves = responder()
        assert halves.receive(request[:cut]) + halves.receive(request[cut:]) == expected, request[:cut]
    bytewise = responder()
    assert b"".join(bytewise.receive(request[at : at + 1]) for at in range(len(request))) == expected


@pytest.mark.parametrize("request_", REJECTED)
def test_any_other_request_is_misdirected(request_: bytes) -> None:
    whole = responder()
    assert whole.receive(request_) == misdirected_response(request_)
    assert whole.closing
    assert whole.receive(GET) == b""
    bytewise = responder()
    responses = b"".join(bytewise.receive(request_[at : at + 1]) for at in range(len(request_)))
    assert responses == misdirected_response(request_)


@pytest.mark.parametrize("start", [b"GET /x", b"GET /readyzz", b"POST /v1", b"GET /readyz HTTP/1.1\r\n" + b"x" * 9000])
def test_an_incomplete_request_is_rejected_as_soon_as_it_cannot_be_a_health_check(start: bytes) -> None:
    assert responder().receive(start) == misdirected_response(start)


def test_a_method_other_than_get_and_head_is_not_allowed() -> None:
    http = responder()
    answer = http.receive(b"DELETE /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nContent-Type: application/problem+json\r\n" in answer
    assert b"\r\nAllow: GET, HEAD\r\n" in answer
    assert http.closing


def test_pipelined_requests_are_answered_in_order() -> None:
    alive = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
    http = responder()
    assert http.receive(GET + alive + GET[:10]) == UNREADY + LIVE
    assert http.receive(GET[10:]) == UNREADY
    assert http.receive(alive + b"GET /admin HTTP/1.1\r\n\r\n" + alive) == LIVE + misdirected_response(b"GET /admin")
    assert http.closing


def test_pipelined_requests_share_one_report_per_path() -> None:
    paths: list[str] = []

    def report(path: str) -> Report:
        paths.append(path)
        return REPORTS[path]

    assert HealthResponder(report, lambda: 0.0).receive(GET * 50) == UNREADY * 50
    assert paths == ["/readyz"]


def test_pipelined_requests_are_limited() -> None:
    """A flood of requests in one packet is no health check, and would delay other connections."""
    http = responder()
    responses = http.receive(GET * 10_000)
    assert responses.startswith(UNREADY * 63)
    assert responses.count(b"HTTP/1.1 503 ") == 64
    assert responses.count(b"\r\nConnection: close\r\n") == 1
    assert http.closing


@given(st.binary(max_size=60), st.lists(st.integers(0, 120), max_size=5))
def test_garbage_never_raises_and_is_rejected_at_most_once(garbage: bytes, cuts: list[int]) -> None:
    data = b"GET /readyz HTTP/1.1\r\n" + garbage
    http = responder()
    responses = b"".join(map(http.receive, _pieces(data, cuts)))
    assert not responses or responses.startswith(b"HTTP/1.1 ")
    assert responses.count(b"HTTP/1.1 421") <= 1


def _pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(marks):
        yield data[start:end]


def test_a_forced_failure_fails_readiness_but_not_liveness() -> None:
    health = Health(lambda: [Check(Aspect.DRAIN, "fail", "going"), Check(Aspect.NAME_SERVERS, "warn", "one is lost")])
    assert (health.report("/healthz").status, health.report("/readyz").status) == ("warn", "fail")
    health.forced = "a test"
    assert health.report("/healthz").http_status == 503
    assert health.report("/livez").http_status == 200


# Through a replica.


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run all tests of the module on one loop, because they share a replica."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def running(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with replica(tmp_path_factory.mktemp("embedded"), limits={"negotiation_timeout": 5.0}) as shared:
        yield shared


async def exchange(running: Replica, *parts: bytes) -> bytes:
    """Send bytes to the clients' port; return its responses once it closes the connection."""
    host, _, port = running.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        responses = await reader.read()
    writer.close()
    return responses


LAST = b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"


@pytest.mark.anyio
async def test_the_clients_port_answers_a_health_check_that_arrives_byte_by_byte(running: Replica) -> None:
    responses = await exchange(running, *(LAST[at : at + 1] for at in range(len(LAST))))
    date = re.search(rb"Date: (.*)\r\n", responses)
    assert date is not None
    assert abs(parsedate_to_datetime(date[1].decode()).timestamp() - time.time()) < 30
    assert responses.replace(date[1], b"Thu, 01 Jan 1970 00:00:00 GMT") == response(b"200 OK", ALIVE, b"close")


@pytest.mark.anyio
async def test_the_clients_port_keeps_connections_alive(running: Replica) -> None:
    responses = await exchange(
        running, b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", b"HEAD /healthz HTTP/1.1\r\n\r\n" + LAST
    )
    first, second, third = responses.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b'"drain":{"status":"pass"' in first
    assert second.endswith(b"Connection: keep-alive\r\n\r\n")
    assert third.endswith(ALIVE)


@pytest.mark.anyio
@pytest.mark.parametrize("path", [b"/v1/connections", b"/metrics", b"/", b"/v1/drain"])
async def test_the_clients_port_serves_no_other_path_of_the_admin_api(running: Replica, path: bytes) -> None:
    responses = await exchange(
        running, b"GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a-token-for-writers\r\n\r\n" % path
    )
    assert responses.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")


@pytest.mark.anyio
async def test_an_incomplete_request_times_out(running: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.frontends.http_health._REQUEST_TIMEOUT", 0.05)
    assert await exchange(running, b"GET /readyz HTTP/1.1\r\nHost: a\r\n") == b""


@pytest.mark.anyio
async def test_a_replica_without_an_admin_api_answers_health_checks(tmp_path: Path) -> None:
    settings = Settings(
        listen=["127.0.0.1:0"], embedded={"directory": tmp_path}, admin={"listen": "off"}, drain_timeout=0
    )
    async with serving(settings) as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        assert app.admin.url is None
        assert app.admin.addresses == []

"""Remoting and HTTP requests of the doctor, each on its own connection, as stateless clients make them."""

import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.tools.doctor.connection import End, Exchange, Target, close_reason
from proxy.tools.remoting_client import RemotingClient, Speaker, route_fields
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RequestTimeout

# A topic that does not exist: an error response identifies the server too.
UNUSED_TOPIC = "gantry-doctor"
# PROXY protocol version 2 (section 2.2): signature, version 2 with the command LOCAL, no address, no further bytes.
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"


class Unanswered(Exception):
    """No response of that protocol; `exchange` has the received bytes."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.why)
        self.exchange = exchange


# Older clients' version, from which on routes are standard JSON.
_DEFAULT_SPEAKER = Speaker("JAVA", STANDARD_JSON_VERSION)


async def ask(
    line: Target | RemotingClient,
    code: int,
    fields: Mapping[str, str],
    body: bytes = b"",
    speaker: Speaker = _DEFAULT_SPEAKER,
) -> RemotingCommand:
    """Send one remoting request; return its response. Raises Unanswered, Unreachable."""
    if isinstance(line, Target):
        async with line.client() as client:
            return await ask(client, code, fields, body, speaker)
    try:
        return await line.request(code, fields, body, speaker=speaker)
    except RequestTimeout:
        raise Unanswered(Exchange(line.first_bytes, End.SILENT)) from None
    except ConnectionLost:
        end = End.ENOUGH if line.closed_by_protocol_error else End.CLOSED
        raise Unanswered(Exchange(line.first_bytes, end, close_reason(line.connection_error))) from None


async def ask_route(line: Target | RemotingClient, topic: str, speaker: Speaker = _DEFAULT_SPEAKER) -> RemotingCommand:
    """Send GET_ROUTEINFO_BY_TOPIC, the first request of every remoting client."""
    return await ask(line, RequestCode.GET_ROUTEINFO_BY_TOPIC, route_fields(topic), speaker=speaker)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP/1.1 response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def reason(self) -> str:
        """Return the reason: failed checks of a health report, the detail of an RFC 9457 problem, or the first line of
        text.
        """
        text = self.body.decode(errors="replace").strip()
        try:
            report = json.loads(text)
        except ValueError:
            report = None
        if not isinstance(report, dict):
            return text.partition("\n")[0][:200] or "no reason is given"
        checks = report.get("checks")
        if isinstance(checks, dict):
            failing = [f"{name}: {check['reason']}" for name, check in checks.items() if check.get("status") == "fail"]
            return "; ".join(failing) or text[:200]
        return str(report.get("detail") or report.get("title") or text)[:200]


async def get(line: Target, path: str) -> HttpAnswer:
    """Send one GET. Raises Unanswered, Unreachable."""
    request = f"GET {path} HTTP/1.1\r\nHost: {line.name}:{line.address.port}\r\nConnection: close\r\n\r\n"
    exchange = await line.exchange(request.encode(), lambda received: received[:1] not in (b"", b"H"))
    if not exchange.received.startswith(b"HTTP/1."):
        raise Unanswered(exchange)
    answer = http.client.HTTPResponse(_Received(exchange.received))  # type: ignore[arg-type]  # reads a file
    try:
        answer.begin()
        return HttpAnswer(answer.status, answer.headers, answer.read())
    except (http.client.HTTPException, OSError):
        raise Unanswered(exchange) from None


class _Received:
    """A stand-in for a socket, for http.client."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._received)

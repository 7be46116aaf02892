"""Requests in the three protocols, each on its own connection, as stateless clients make them."""

import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.tools.doctor.connection import Connection, End, Exchange, Target
from remoting import command as commands
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.frame import FrameDecoder

# PROXY protocol version 2 (section 2.2): signature, version 2 with the command LOCAL, no address, no further bytes.
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
_LENGTH = 4
# No remoting frame begins with a larger byte: the highest byte of its length.
_HIGHEST = 1


class Unanswered(Exception):
    """No response of that protocol; `exchange` has the received bytes."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.why)
        self.exchange = exchange


@dataclass(frozen=True, slots=True)
class Speaker:
    """The client's language and version in commands."""

    language: str = "JAVA"
    version: int = STANDARD_JSON_VERSION


async def ask(
    line: Target | Connection, code: int, fields: Mapping[str, str], body: bytes = b"", speaker: Speaker = Speaker()
) -> RemotingCommand:
    """Send one remoting request; return its response. Raises Unanswered, Unreachable."""
    command = commands.request(code, dict(fields), body)
    command.header.update(language=speaker.language, version=speaker.version)
    exchange = await line.exchange(command.encode() + body, _is_frame)
    if exchange.end is not End.ENOUGH:
        raise Unanswered(exchange)
    try:
        (frame, *_) = FrameDecoder().feed(exchange.received)
        return commands.decode(frame)
    except (RemotingError, ValueError):
        raise Unanswered(exchange) from None


async def ask_route(line: Target | Connection, topic: str, speaker: Speaker = Speaker()) -> RemotingCommand:
    """Send GET_ROUTEINFO_BY_TOPIC, the first request of every remoting client."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return await ask(line, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, speaker=speaker)


def _is_frame(received: bytes) -> bool:
    """Return whether a frame is complete, or the bytes cannot become one."""
    if received[:1] > bytes([_HIGHEST]):
        return True
    return len(received) >= _LENGTH and len(received) >= _LENGTH + int.from_bytes(received[:_LENGTH])


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
            describe_bytes = json.loads(text)
        except ValueError:
            describe_bytes = None
        if not isinstance(describe_bytes, dict):
            return text.partition("\n")[0][:200] or "no reason is given"
        checks = describe_bytes.get("checks")
        if isinstance(checks, dict):
            failing = [f"{name}: {check['reason']}" for name, check in checks.items() if check.get("status") == "fail"]
            return "; ".join(failing) or text[:200]
        return str(describe_bytes.get("detail") or describe_bytes.get("title") or text)[:200]


async def get(line: Target, path: str) -> HttpAnswer:
    """Send one GET. Raises Unanswered, Unreachable."""
    request = f"GET {path} HTTP/1.1\r\nHost: {line.name}:{line.address.port}\r\nConnection: close\r\n\r\n"
    exchange = await line.exchange(request.encode(), lambda received: received[:1] not in (b"", b"H"))
    if not exchange.received.startswith(b"HTTP/1."):
        raise Unanswered(exchange)
    answer = http.client.HTTPResponse(_Received(exchange.received))  # type: ignore[arg-type]  # it wants a file only
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

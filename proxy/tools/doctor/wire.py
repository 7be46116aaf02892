"""Requests in the three protocols, one connection each, as clients that hold no state make them."""

import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.tools.doctor.connection import End, Exchange, Line, Opened
from remoting import command as commands
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.frame import FrameDecoder

# PROXY protocol version 2 (section 2.2): the signature, version 2 with the command LOCAL, no address, no more bytes.
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
_LENGTH = 4
# No remoting frame begins with more: its first byte is the highest of the length.
_HIGHEST = 1


class Unanswered(Exception):
    """No answer of that protocol came; `exchange` is what happened instead."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.why)
        self.exchange = exchange


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whose words to use: a client's language and version, as commands carry them."""

    language: str = "JAVA"
    version: int = STANDARD_JSON_VERSION


async def ask(
    line: Line | Opened, code: int, fields: Mapping[str, str], body: bytes = b"", speaker: Speaker = Speaker()
) -> RemotingCommand:
    """One remoting request and its answer. Raises Unanswered, Unreachable."""
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


async def ask_route(line: Line | Opened, topic: str, speaker: Speaker = Speaker()) -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC, the first that every remoting client says."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return await ask(line, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, speaker=speaker)


def _is_frame(received: bytes) -> bool:
    """A whole frame is there, or what is there cannot become one."""
    if received[:1] > bytes([_HIGHEST]):
        return True
    return len(received) >= _LENGTH and len(received) >= _LENGTH + int.from_bytes(received[:_LENGTH])


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP/1.1 answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def reason(self) -> str:
        """Why: the checks of a health report that fail, what an RFC 9457 problem says, or the first line of a text."""
        text = self.body.decode(errors="replace").strip()
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            return text.partition("\n")[0][:200] or "no reason is given"
        checks = said.get("checks")
        if isinstance(checks, dict):
            failing = [f"{name}: {check['reason']}" for name, check in checks.items() if check.get("status") == "fail"]
            return "; ".join(failing) or text[:200]
        return str(said.get("detail") or said.get("title") or text)[:200]


async def get(line: Line, path: str) -> HttpAnswer:
    """One GET. Raises Unanswered, Unreachable."""
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
    """What http.client takes for a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._received)

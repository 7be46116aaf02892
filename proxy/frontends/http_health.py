"""Health on the clients' port: as much HTTP/1.1 (RFC 9112) as a load balancer's check needs, and nothing else.

Keep-alive, pipelining within bounds, and HEAD work. A target that is not one of the health paths, and what is no
proper request, gets the answer that HTTP clients get at this port otherwise (`http1_rejection`), as soon as
that is clear.
"""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import cache, partial
from typing import cast

from protocol_negotiation.http1_rejection import misdirected
from protocol_negotiation.peer import Peer
from protocol_negotiation.rejection import LINGER
from proxy.core.health import PATHS, Health, Report
from proxy.observability.metrics.process import product_version

# Bytes of a request up to the empty line: health checks need a few hundred.
_MAX_HEAD = 8 * 1024
# Seconds until a request has come whole, counted from the last answer.
_TIMEOUT = 30.0
# Requests that may come together: checks of health send one, and everybody else waits for the answers to many.
_MAX_TOGETHER = 64
_END = b"\r\n\r\n"
_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.([01])")
# RFC 9110 section 5.6.2 and 5.5: a token, and what a field's value may hold.
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
_METHODS = (b"GET", b"HEAD")
_PATHS = {path.encode(): path for path in PATHS}
_PHRASES = {200: b"OK", 405: b"Method Not Allowed", 503: b"Service Unavailable"}
_HEAD = (
    b"HTTP/1.1 %d %s\r\nDate: %s\r\nServer: gantry/%s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\n%sConnection: %s\r\n\r\n"
)
_NOT_ALLOWED = b'{"type":"about:blank","title":"Method Not Allowed","status":405}'


class Responder:
    """Sans-io: bytes in, answers out. `closing` is set once nothing more will be answered.

    `now`: seconds since 1970, so that whoever asks can compare clocks.
    """

    __slots__ = ("_buffer", "_now", "_report", "closing")

    def __init__(self, report: Callable[[str], Report], now: Callable[[], float] = time.time) -> None:
        self._report = report
        self._now = now
        self._buffer = b""
        self.closing = False

    def receive(self, data: bytes) -> bytes:
        """The answers to all requests that are complete with `data`, in their order."""
        self._buffer += data
        # Of what came together, each path is looked at once.
        reports: dict[str, Report] = {}
        answers: list[bytes] = []
        while self._buffer and not self.closing:
            answer = self._next(reports, len(answers) + 1 == _MAX_TOGETHER)
            if answer is None:
                break
            answers.append(answer)
        if self.closing:
            self._buffer = b""
        return b"".join(answers)

    def _next(self, reports: dict[str, Report], last: bool) -> bytes | None:
        head, end, rest = self._buffer.partition(_END)
        if not end:
            return None if _may_become(self._buffer) else self._refuse()
        request = _parse(head) if len(head) <= _MAX_HEAD else None
        if request is None:
            return self._refuse()
        method, path, stays = request
        self._buffer = rest
        self.closing = last or not stays
        if method not in _METHODS:
            self.closing = True
            return self._answer(405, b"application/problem+json", _NOT_ALLOWED, False, b"Allow: GET, HEAD\r\n")
        report = reports.get(path) or self._report(path)
        reports[path] = report
        return self._answer(report.http_status, b"application/json", report.json(), method == b"HEAD")

    def _answer(self, status: int, kind: bytes, body: bytes, bare: bool, more: bytes = b"") -> bytes:
        stays = b"close" if self.closing else b"keep-alive"
        date = formatdate(self._now(), usegmt=True).encode()
        head = _HEAD % (status, _PHRASES[status], date, _release(), kind, len(body), more, stays)
        return head if bare else head + body

    def _refuse(self) -> bytes:
        self.closing = True
        return misdirected(self._buffer)


def _may_become(buffer: bytes) -> bool:
    """Whether what has come so far can still be the beginning of a question about health."""
    if len(buffer) > _MAX_HEAD:
        return False
    line, ended, _ = buffer.partition(b"\r\n")
    if ended:
        return _target(line) is not None
    _, blank, target = line.partition(b" ")
    if not blank:
        return True
    target, over, _ = target.partition(b" ")
    if not target.startswith(b"/"):
        return b"://".join((b"http", b"")).startswith(target[:7].lower()) or _ABSOLUTE.match(target) is not None
    path, question, _ = target.partition(b"?")
    if over or question:
        return path in _PATHS
    return any(known.startswith(path) for known in _PATHS)


def _target(line: bytes) -> tuple[bytes, str, bool] | None:
    """Method, path and whether it is HTTP/1.1, of a request line that asks for health."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    method, target, minor = found.groups()
    path = _PATHS.get((_ABSOLUTE.sub(b"", target, count=1) or b"/").partition(b"?")[0])
    return None if path is None else (method, path, minor == b"1")


def _parse(head: bytes) -> tuple[bytes, str, bool] | None:
    """Method, path and whether the connection stays open. Host is not asked for: many checks leave it out."""
    line, *lines = head.split(b"\r\n")
    request = _target(line)
    fields = [_FIELD.fullmatch(item) for item in lines]
    if request is None or not all(fields):
        return None
    method, path, modern = request
    stays = modern
    for field in filter(None, fields):
        name, value = field[1].lower(), field[2].strip().lower()
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            stays = b"close" not in options and (stays or b"keep-alive" in options)
        elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            # Nobody has use for content here; what follows is not looked at.
            return method, path, False
    return method, path, stays


@cache
def _release() -> bytes:
    return product_version().encode()


class HealthConnection(asyncio.Protocol):
    """The I/O around a `Responder`: a handler of `protocol_negotiation`."""

    __slots__ = ("_deadline", "_leaving", "_responder", "_transport")

    _transport: asyncio.Transport

    def __init__(self, health: Health, _: Peer) -> None:
        self._responder = Responder(health.report)
        self._deadline: asyncio.TimerHandle | None = None
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._wait(_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        answer = self._responder.receive(data)
        if answer:
            self._transport.write(answer)
            self._wait(_TIMEOUT)
        if self._responder.closing:
            self._leave()

    def eof_received(self) -> None:
        """The client has closed its side: None lets the transport close when it is empty."""

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _leave(self) -> None:
        """Closing at once, with bytes unread, could take the answer along (RFC 9112 section 9.6)."""
        self._leaving = True
        self._wait(LINGER)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _wait(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        # Whoever does not read has had his time as well.
        self._transport.abort()


def handler(health: Health) -> Callable[[Peer], HealthConnection]:
    """What the negotiation layer makes connections with."""
    return partial(HealthConnection, health)

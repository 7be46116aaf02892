"""Health checks on the clients' port: the subset of HTTP/1.1 (RFC 9112) that a load balancer's check needs.

Keep-alive, bounded pipelining and HEAD are supported. A request for any other path, and bytes that are not a valid
request, get the response of `protocol_negotiation.rejection` as early as possible.
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import cache, partial
from typing import NamedTuple, cast

import h11

from protocol_negotiation.peer import Peer
from protocol_negotiation.rejection import LINGER_SECONDS, misdirected_response
from proxy.core.health import PATHS, Health, Report
from proxy.observability.metrics.process import product_version

# Bytes of a request line and its fields; health checks need a few hundred.
_MAX_HEAD = 8 * 1024
# Seconds for a whole request, from the opening of the connection or the last response.
_REQUEST_TIMEOUT = 30.0
# Requests received at once. Health checks send one, and other connections wait while many are answered.
_MAX_PIPELINED = 64
_HEAD_END = b"\r\n\r\n"
_FOLDS = (b"\r\n ", b"\r\n\t")
_CONTROLS = bytes(byte for byte in range(0x20) if byte != 0x09) + b"\x7f"
_VERSIONS = (b"HTTP/1.0", b"HTTP/1.1")
_SCHEMES = (b"http://", b"https://")
_METHODS = (b"GET", b"HEAD")
_PATHS = {path.encode(): path for path in PATHS}
_PHRASES = {200: b"OK", 405: b"Method Not Allowed", 503: b"Service Unavailable"}
_RESPONSE_HEAD = (
    b"HTTP/1.1 %d %s\r\nDate: %s\r\nServer: gantry/%s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\n%sConnection: %s\r\n\r\n"
)
_NOT_ALLOWED = b'{"type":"about:blank","title":"Method Not Allowed","status":405}'


class _Request(NamedTuple):
    method: bytes
    path: str
    keep_alive: bool


class HealthResponder:
    """Sans-io: request bytes in, responses out. `closing` is true once no further request is answered.

    `now` returns seconds since 1970, for the Date field.
    """

    __slots__ = ("_buffer", "_now", "_report", "closing")

    def __init__(self, report: Callable[[str], Report], now: Callable[[], float] = time.time) -> None:
        self._report = report
        self._now = now
        self._buffer = b""
        self.closing = False

    def receive(self, data: bytes) -> bytes:
        """Return the responses to all requests that `data` completes, in their order."""
        self._buffer += data
        # Requests received at once share one report per path.
        reports: dict[str, Report] = {}
        responses: list[bytes] = []
        while self._buffer and not self.closing:
            response = self._next_response(reports, len(responses) + 1 == _MAX_PIPELINED)
            if response is None:
                break
            responses.append(response)
        if self.closing:
            self._buffer = b""
        return b"".join(responses)

    def _next_response(self, reports: dict[str, Report], last: bool) -> bytes | None:
        head, end, rest = self._buffer.partition(_HEAD_END)
        if not end:
            return None if _may_be_health_check(self._buffer) else self._reject()
        request = _parse(head)
        if request is None:
            return self._reject()
        self._buffer = rest
        self.closing = last or not request.keep_alive
        if request.method not in _METHODS:
            self.closing = True
            return self._response(405, b"application/problem+json", _NOT_ALLOWED, fields=b"Allow: GET, HEAD\r\n")
        report = reports.get(request.path) or self._report(request.path)
        reports[request.path] = report
        return self._response(report.http_status, b"application/json", report.json(), request.method == b"HEAD")

    def _response(
        self, status: int, content_type: bytes, content: bytes, head_only: bool = False, fields: bytes = b""
    ) -> bytes:
        connection = b"close" if self.closing else b"keep-alive"
        date = formatdate(self._now(), usegmt=True).encode()
        head = _RESPONSE_HEAD % (
            status,
            _PHRASES[status],
            date,
            _product_version(),
            content_type,
            len(content),
            fields,
            connection,
        )
        return head if head_only else head + content

    def _reject(self) -> bytes:
        self.closing = True
        return misdirected_response(self._buffer)


def _may_be_health_check(buffer: bytes) -> bool:
    """Return whether the incomplete request in the buffer may become a health check."""
    if len(buffer) > _MAX_HEAD:
        return False
    line, line_ended, _ = buffer.partition(b"\r\n")
    if line_ended:
        return _path_of(line) is not None
    _, method_ended, target = line.partition(b" ")
    if not method_ended:
        return True
    target, target_ended, _ = target.partition(b" ")
    if target_ended or b"?" in target:
        return _path(target) is not None
    if target.startswith(b"/"):
        return any(path.startswith(target) for path in _PATHS)
    target = target.lower()
    return any(scheme.startswith(target) or target.startswith(scheme) for scheme in _SCHEMES)


def _path_of(line: bytes) -> str | None:
    """Return the health path of a request line; None if it has another path or is invalid."""
    words = line.split(b" ")
    return _path(words[1]) if len(words) == 3 and words[2] in _VERSIONS else None


def _path(target: bytes) -> str | None:
    """Return the health path of a request target in origin form or absolute form; None if it has another path."""
    path = target.partition(b"?")[0]
    scheme, separator, rest = path.partition(b"://")
    if scheme.lower() + separator in _SCHEMES:
        path = b"/" + rest.partition(b"/")[2]
    return _PATHS.get(path)


def _parse(head: bytes) -> _Request | None:
    """Parse a complete head; return None if it is invalid, too long, or not a health check."""
    path = _path_of(head.partition(b"\r\n")[0])
    if path is None or len(head) > _MAX_HEAD or not _is_strict(head):
        return None
    if b"\r\nhost:" not in head.lower():
        # h11 requires Host, which many health checks omit.
        head += b"\r\nHost:"
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * _MAX_HEAD)
    try:
        reader.receive_data(head + _HEAD_END)
        request = reader.next_event()
    except h11.RemoteProtocolError:
        return None
    return _Request(request.method, path, _keeps_alive(request)) if isinstance(request, h11.Request) else None


def _is_strict(head: bytes) -> bool:
    """Return whether a head has no folded fields, control characters and bare line feeds, which h11 accepts."""
    text = head.replace(b"\r\n", b"")
    return len(text.translate(None, _CONTROLS)) == len(text) and not any(fold in head for fold in _FOLDS)


def _keeps_alive(request: h11.Request) -> bool:
    """Return whether the connection stays open after a request. With content, it does not: content is not read."""
    keep_alive = request.http_version == b"1.1"
    for name, value in request.headers:
        if name == b"connection":
            options = [option.strip() for option in value.lower().split(b",")]
            keep_alive = b"close" not in options and (keep_alive or b"keep-alive" in options)
        elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return False
    return keep_alive


@cache
def _product_version() -> bytes:
    return product_version().encode()


class HealthConnection(asyncio.Protocol):
    """Transport of a `HealthResponder`; a handler of `protocol_negotiation`."""

    __slots__ = ("_closing", "_deadline", "_responder", "_transport")

    _transport: asyncio.Transport

    def __init__(self, health: Health, _: Peer) -> None:
        self._responder = HealthResponder(health.report)
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._set_deadline(_REQUEST_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        responses = self._responder.receive(data)
        if responses:
            self._transport.write(responses)
            self._set_deadline(_REQUEST_TIMEOUT)
        if self._responder.closing:
            self._close()

    def eof_received(self) -> None:
        """Let the transport close once its buffer is empty (by returning None)."""

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _close(self) -> None:
        """Close after a delay: closing with unread bytes could discard the response (RFC 9112 section 9.6)."""
        self._closing = True
        self._set_deadline(LINGER_SECONDS)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        # Abort, because a client that does not read would keep a closing transport open.
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._abort)

    def _abort(self) -> None:
        self._transport.abort()


def handler(health: Health) -> Callable[[Peer], HealthConnection]:
    """Return the handler of HTTP/1.1 connections."""
    return partial(HealthConnection, health)

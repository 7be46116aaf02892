"""Rejection of connections that reached the wrong port or a limit: one response, then the connection closes."""

import asyncio
from typing import cast

from protocol_negotiation.peer import Peer

# Seconds for the client to read the response and close. Closing at once, with unread bytes of the client, would reset
# the connection and could discard the response (RFC 9112 section 9.6).
LINGER_SECONDS = 1.0


class Rejector(asyncio.Protocol):
    """Sends the `response` to the first bytes received, ignores all others, and closes."""

    __slots__ = ("_closing", "_transport")

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._closing: asyncio.TimerHandle | None = None

    def response(self, data: bytes) -> bytes:
        """Return the response to the first bytes of the client."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._closing is not None:
            return
        transport = self._transport
        self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)
        transport.write(self.response(data))
        if transport.can_write_eof():
            transport.write_eof()

    def eof_received(self) -> None:
        """Let the transport close (by returning None)."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing is not None:
            self._closing.cancel()


# HTTP/1.1.

_MISDIRECTED = (
    b"This is an access point of Apache RocketMQ, not a web server.\n"
    b"Point a RocketMQ client (remoting or gRPC) at this address.\n"
)


def misdirected_response(request: bytes) -> bytes:
    """Return the complete HTTP/1.1 response to the request that begins with `request`.

    Status 421 means that the request reached a server that is not configured for its target (RFC 9110 section
    15.5.20).
    """
    head = (
        b"HTTP/1.1 421 Misdirected Request\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: %d\r\n"
        b"Connection: close\r\n"
        b"\r\n"
    ) % len(_MISDIRECTED)
    # RFC 9110 section 9.3.2: a response to HEAD has no content.
    return head if request.startswith(b"HEAD ") else head + _MISDIRECTED


class Http1Rejector(Rejector):
    """Handler of HTTP/1.1 on a listener that does not serve it."""

    __slots__ = ()

    def __init__(self, _: Peer) -> None:
        super().__init__()

    def response(self, data: bytes) -> bytes:
        return misdirected_response(data)

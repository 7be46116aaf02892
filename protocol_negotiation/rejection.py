"""An answer for a client that is at the wrong place: said once, then the connection ends."""

import asyncio
from typing import cast

# Seconds that the client gets to read the answer and close. Closing at once, with bytes of the client unread,
# would reset the connection and could take the answer with it (RFC 9112 section 9.6).
LINGER = 1.0


class Farewell(asyncio.Protocol):
    """Sends what `answer` gives for the first bytes received, ignores everything else, and closes."""

    __slots__ = ("_closing", "_transport")

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._closing: asyncio.TimerHandle | None = None

    def answer(self, data: bytes) -> bytes:
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._closing is not None:
            return
        transport = self._transport
        self._closing = asyncio.get_running_loop().call_later(LINGER, transport.close)
        transport.write(self.answer(data))
        if transport.can_write_eof():
            transport.write_eof()

    def eof_received(self) -> None:
        """The client has closed its side: None lets the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing is not None:
            self._closing.cancel()

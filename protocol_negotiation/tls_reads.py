"""Bounded reads of TLS connections: records without data cost processor time, and OpenSSL handles them all at once.

A KeyUpdate (RFC 8446 section 4.6.3) has 27 bytes, derives keys, and may be sent at any time. OpenSSL does not limit the
number of them, and its read returns only when it finds data, or no more records.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

# Bytes of data in a record, and bytes of the largest record (RFC 8446 sections 5.1 and 5.2), which has no data for the
# reader until it is complete.
_MAX_DATA: Final = 2**14
_MAX_RECORD: Final = 5 + 2**14 + 256
# Received bytes without data at which a connection is closed: as KeyUpdates they take the time of a few handshakes.
_MAX_WITHOUT_DATA: Final = _MAX_RECORD + 8 * 1024
# Bytes without data that each second allows, and received bytes that each byte of data allows: keys are renewed, and
# some records have padding.
_RENEWED_PER_SECOND: Final = 1024
_CREDIT: Final = 1 + 1 / 8
# Bytes passed on at once while they are data: each step has its costs.
_MAX_STEP: Final = 128 * 1024
# Bytes of a record beside its data: header, authentication tag, and the type of the content in TLS 1.3, or in TLS 1.2,
# which has no KeyUpdate, the nonce (RFC 5288 section 3).
_RECORD_BYTES: Final = {"TLSv1.3": 5 + 16 + 1, "TLSv1.2": 5 + 16 + 8}
# Bytes of a handshake; OpenSSL allows 100 KiB for the chain of a client certificate (SSL_CTX_set_max_cert_list).
_MAX_HANDSHAKE: Final = 128 * 1024
# Records with data in one turn of the event loop: tiny ones cost time, too.
_TURN_READS: Final = 512
# Received bytes that wait while the protocol inside TLS does not read; they are handled in one step.
_MAX_WAITING: Final = 64 * 1024


class CountingSslObject(ssl.SSLObject):
    """TLS connection that counts the data it returns (``SSLContext.sslobject_class``).

    used: bytes of data and of their records. reads: number of reads that returned them. overhead: bytes of a record
    beside its data.
    """

    used = reads = 0
    overhead = 0

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002  # as in the base class
        """Return data, or write them to `buffer` and return their number, as ``SSLObject.read``.

        It returns the data of one record at most, but the ssl module first allocates `len` bytes, which uvloop makes
        256 KiB: much for a small record.
        """
        result: Any = super().read(min(len, _MAX_DATA)) if buffer is None else super().read(len, buffer)
        size = result if isinstance(result, int) else result.__len__()
        self.used += size + self.overhead
        self.reads += 1
        return result


class TlsReads(asyncio.BufferedProtocol):
    """Protocol of a socket's transport that passes the received bytes on to the SSL protocol, in steps.

    `on_flood` is called with the reason before the connection is closed for its records without data.
    """

    __slots__ = (
        "_counting",
        "_get_buffer",
        "_handshake",
        "_loop",
        "_on_flood",
        "_renewed_at",
        "_ssl_protocol",
        "_step",
        "_transport",
        "_update_buffer",
        "_waiting",
        "_without_data",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        ssl_protocol: Any,
        on_flood: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._ssl_protocol = ssl_protocol
        self._get_buffer = ssl_protocol.get_buffer
        self._update_buffer = ssl_protocol.buffer_updated
        self._on_flood = on_flood
        # None during the handshake, of which `_handshake` bytes have been received.
        self._counting: CountingSslObject | None = None
        self._handshake = 0
        # Returns the number of bytes in the SSL protocol that OpenSSL has not read.
        self._waiting: Callable[[], int] = int
        # Includes the bytes that wait.
        self._without_data = 0.0
        self._renewed_at = 0.0
        # Bytes of the next step at most.
        self._step = _MAX_WITHOUT_DATA

    def end_handshake(
        self, transport: asyncio.Transport, connection: CountingSslObject, on_flood: Callable[[str], None]
    ) -> None:
        """Count the data of a connection from now on; `transport` is the one inside TLS."""
        self._counting = connection
        connection.overhead = _RECORD_BYTES[connection.version() or "TLSv1.2"]
        self._on_flood = on_flood
        self._renewed_at = self._loop.time()
        # Of the transports inside TLS of asyncio and uvloop; typeshed has them for no transport.
        self._waiting = transport.get_read_buffer_size  # type: ignore[attr-defined]
        transport.set_read_buffer_limits(high=_MAX_WAITING)  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> Any:
        return self._get_buffer(sizehint)[: self._step]

    def buffer_updated(self, nbytes: int) -> None:
        self._update_buffer(nbytes)
        counting = self._counting
        if counting is None:
            self._check_handshake(nbytes)
            return
        used = counting.used
        counting.used = 0
        without_data = self._without_data + nbytes - used * _CREDIT
        self._without_data = without_data if without_data > 0 else 0.0
        if without_data > _MAX_RECORD:
            self._check_flood()
        elif nbytes == self._step:
            self._end_full_step(counting, used)
        else:
            # The socket has no more.
            counting.reads = 0

    def eof_received(self) -> bool | None:
        return self._ssl_protocol.eof_received()  # type: ignore[no-any-return]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ssl_protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._ssl_protocol.pause_writing()

    def resume_writing(self) -> None:
        self._ssl_protocol.resume_writing()

    def _check_handshake(self, received: int) -> None:
        self._handshake += received
        if self._handshake > _MAX_HANDSHAKE:
            self._on_flood(f"a TLS handshake of more than {_MAX_HANDSHAKE} bytes")
            self._transport.abort()
            return
        # Data behind the handshake must not be read before they are counted.
        self._end_turn()

    def _end_full_step(self, counting: CountingSslObject, used: int) -> None:
        """Read more at once as long as it is data; read on in the next turn after many records in this one."""
        if 2 * used > self._step:
            self._step = min(2 * self._step, _MAX_STEP)
        if counting.reads >= _TURN_READS:
            counting.reads = 0
            self._end_turn()

    def _check_flood(self) -> None:
        """Read on in the next turn, and no more than may be without data; close the connection if it has had that."""
        now = self._loop.time()
        renewed, self._renewed_at = (now - self._renewed_at) * _RENEWED_PER_SECOND, now
        self._without_data = max(0.0, self._without_data - renewed)
        left = _MAX_WITHOUT_DATA - (self._without_data - self._waiting())
        if left < 1:
            self._on_flood(f"more than {_MAX_WITHOUT_DATA} bytes of TLS records without data")
            self._transport.abort()
            return
        self._step = min(int(left), _MAX_WITHOUT_DATA)
        self._end_turn()

    def _end_turn(self) -> None:
        """Read on in the next turn of the event loop, unless the SSL protocol has paused the transport."""
        if self._transport.is_reading() and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

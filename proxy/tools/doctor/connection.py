"""A connection target, its remoting client, and raw exchanges of bytes with servers of unknown kind."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from protocol_negotiation.peer import HostPort
from proxy.tools.remoting_client import RemotingClient, connect
from remoting.signature import Credentials

_CHUNK = 1 << 16


class End(StrEnum):
    """How an exchange ended. The values are shown to users."""

    ENOUGH = "it answered"
    CLOSED = "the connection was closed"
    SILENT = "no answer in time"


class Unreachable(Exception):
    """No connection could be made; the text is the reason."""


class NoTls(Unreachable):
    """The TCP connection succeeded, the TLS handshake failed."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The received bytes, and the end; `error` is the operating system's or TLS' reason, if any."""

    received: bytes
    end: End
    error: str = ""

    @property
    def why(self) -> str:
        """Return the reason in words."""
        if self.end is End.ENOUGH:
            return f"it sent {describe_bytes(self.received)}"
        return self.error or self.end.value


@dataclass(frozen=True, slots=True)
class Target:
    """A connection target.

    address: IP address (or a name) and port. name: for certificates and Host fields. tls: None for plain. timeout:
    seconds for a connection, and for a response. prefix: written before anything else. credentials: sign each request.
    """

    address: HostPort
    name: str
    timeout: float
    tls: ssl.SSLContext | None = None
    prefix: bytes = b""
    credentials: Credentials | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Connection"]:
        """Open a connection for the duration of the context. Raises Unreachable."""
        with _connect_errors(self.timeout):
            async with asyncio.timeout(self.timeout):
                reader, writer = await asyncio.open_connection(
                    self.address.host,
                    self.address.port,
                    ssl=self.tls,
                    server_hostname=None if self.tls is None else self.name,
                )
        try:
            writer.write(self.prefix)
            yield Connection(reader, writer, self.timeout)
        finally:
            # Abort, without TLS' close_notify: waiting for a peer that does not answer it would delay the doctor.
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def exchange(self, data: bytes, enough: Callable[[bytes], bool]) -> Exchange:
        """Send `data` on a new connection, and read until `enough`. Raises Unreachable."""
        async with self.opened() as opened:
            return await opened.exchange(data, enough)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RemotingClient]:
        """Open a remoting client for the duration of the context. Raises Unreachable."""
        connecting = connect(
            self.address,
            self.timeout,
            tls=self.tls,
            server_name=self.name,
            prefix=self.prefix,
            credentials=self.credentials,
        )
        async with contextlib.AsyncExitStack() as stack:
            with _connect_errors(self.timeout):
                opened = await stack.enter_async_context(connecting)
            yield opened


@contextmanager
def _connect_errors(timeout: float) -> Iterator[None]:
    """Convert errors of a connection attempt. Raises Unreachable."""
    try:
        yield
    except ssl.SSLError as error:
        raise NoTls(tls_reason(error)) from error
    except TimeoutError:
        raise Unreachable(f"no answer within {timeout:g} s") from None
    except OSError as error:
        raise Unreachable(reason(error)) from error


class Connection:
    """An open connection for raw exchanges."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout

    @property
    def tls(self) -> ssl.SSLObject | None:
        """Return the parameters of a TLS connection."""
        found: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return found

    async def exchange(self, data: bytes, enough: Callable[[bytes], bool], timeout: float | None = None) -> Exchange:
        """Send `data`, and read until `enough`, for at most `timeout` seconds."""
        received = b""
        try:
            self._writer.write(data)
            async with asyncio.timeout(timeout or self._timeout):
                while not enough(received):
                    chunk = await self._reader.read(_CHUNK)
                    if not chunk:
                        return Exchange(received, End.CLOSED)
                    received += chunk
        except TimeoutError:
            return Exchange(received, End.SILENT)
        except OSError as error:
            return Exchange(received, End.CLOSED, close_reason(error))
        return Exchange(received, End.ENOUGH)


# asyncio raises this without a text.
_UNWORDED: dict[type[OSError], str] = {
    ConnectionResetError: "the connection was reset",
    ConnectionAbortedError: "the connection was aborted",
}


def reason(error: OSError) -> str:
    """Return the operating system's reason, without numbers and addresses."""
    if error.strerror is None:
        return _UNWORDED.get(type(error), str(error) or type(error).__name__)
    # asyncio's own text has the address, and not the reason; errors of name look-ups have negative numbers.
    text = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
    return text.lower()


def close_reason(error: Exception | None) -> str:
    """Return the reason of the end of a connection; empty if it was closed in order."""
    if isinstance(error, ssl.SSLError):
        return tls_reason(error)
    return reason(error) if isinstance(error, OSError) else ""


def tls_reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in readable form."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()


# First bytes of servers often found on a wrong port.
_KNOWN = (
    (b"\x15\x03", "a TLS alert"),
    (b"HTTP/1.", "HTTP/1"),
    (b"SSH-", "SSH"),
    (b"* OK", "IMAP"),
    (b"220 ", "SMTP or FTP"),
    (b"-ERR", "Redis"),
)


def describe_bytes(received: bytes) -> str:
    """Describe received bytes for users."""
    # RFC 9113 section 3.4: a server begins with SETTINGS, on stream 0.
    if len(received) >= 9 and received[3] == 4 and received[5:9] == bytes(4):
        return "HTTP/2"
    for start, name in _KNOWN:
        if received.startswith(start):
            return name
    return f"{received[:16]!r}" if received else "nothing"

"""A remoting client of one connection, for the command line and the doctor."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from protocol_negotiation.peer import HostPort
from remoting import command as commands
from remoting import routes
from remoting.close_cause import CloseCause
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import RemotingError, UnsupportedRequest
from remoting.routes import TopicRoute
from remoting.signature import Credentials, sign
from remoting.timeout_wheel import TimeoutWheel, ticking

# A frame begins with its length, which is at most 16 MiB, so no frame begins with a larger byte.
_MAX_FIRST_BYTE = b"\x01"
_MAX_FIRST_BYTES = 64


@dataclass(frozen=True, slots=True)
class Speaker:
    """A client's language and version, as its commands state them."""

    language: str
    version: int


class RemotingClient:
    """A connection to a server, and requests over it; several may be in flight.

    timeout: seconds per response. credentials: sign each request; None: requests are not signed.
    """

    def __init__(self, connection: "_ClientConnection", timeout: float, credentials: Credentials | None = None) -> None:
        self._connection = connection
        self._credentials = credentials
        self._timeout = timeout

    async def request(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        timeout: float | None = None,
        speaker: Speaker | None = None,
    ) -> RemotingCommand:
        """Send a request and return its response. Raises RequestTimeout, ConnectionLost.

        timeout: seconds, instead of the client's. speaker: identity in the command, instead of Gantry's.
        """
        command = commands.request(code, dict(fields), body)
        if speaker is not None:
            command.header.update(language=speaker.language, version=speaker.version)
        if self._credentials is not None:
            sign(command, self._credentials)
        return await self._connection.request(command, timeout or self._timeout)

    @property
    def first_bytes(self) -> bytes:
        """The first bytes that the server has sent."""
        return self._connection.first_bytes

    @property
    def received_bytes(self) -> int:
        """The number of bytes that the server has sent."""
        return self._connection.received_bytes

    @property
    def closed_by_protocol_error(self) -> bool:
        """Whether the server has sent bytes that are not remoting frames."""
        return self._connection.cause is CloseCause.PROTOCOL

    @property
    def connection_error(self) -> Exception | None:
        """The error that ended the connection; None if it is open or was closed in order."""
        return self._connection.error


class _ClientConnection(RemotingConnection):
    """A connection that keeps the evidence for an error message: first bytes and the transport's error."""

    __slots__ = ("closed_event", "error", "first_bytes")

    def __init__(self, wheel: TimeoutWheel, name: str, handler: Handler) -> None:
        self.closed_event = asyncio.Event()
        super().__init__(wheel, handler, lambda _: self.closed_event.set(), name=name)
        self.first_bytes = b""
        self.error: Exception | None = None

    def data_received(self, data: bytes) -> None:
        if len(self.first_bytes) < _MAX_FIRST_BYTES:
            self.first_bytes += data[: _MAX_FIRST_BYTES - len(self.first_bytes)]
        if self.first_bytes[:1] > _MAX_FIRST_BYTE:
            # The decoder would wait for the eight bytes before a header.
            self.received_bytes += len(data)
            self.abort(CloseCause.PROTOCOL)
        else:
            super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        super().connection_lost(error)

    def _protocol_error(self, error: RemotingError, data: bytes) -> None:
        # Without the log line of a server: the command reports the error.
        self.abort(CloseCause.PROTOCOL)


def refuse(command: RemotingCommand) -> None:
    """Raise UnsupportedRequest for a request of the server."""
    raise UnsupportedRequest(f"the command line does not serve request code {command.code}")


@asynccontextmanager
async def connect(
    address: HostPort,
    timeout: float,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    prefix: bytes = b"",
    close_timeout: float = 0.0,
    credentials: Credentials | None = None,
    handler: Handler = lambda _, command: refuse(command),
) -> AsyncIterator[RemotingClient]:
    """Connect for the duration of the context. Raises TimeoutError, OSError, ssl.SSLError.

    timeout: seconds for the connection, and for each response. server_name: name that the certificate must have,
    instead of the address. prefix: bytes before the first frame. close_timeout: seconds that the server has for its
    part of the close over TLS; 0: abort the connection. credentials: sign each request. handler: serves requests of the
    server.
    """
    loop = asyncio.get_running_loop()
    wheel = TimeoutWheel(loop.time)
    async with asyncio.timeout(timeout):
        transport, connection = await loop.create_connection(
            lambda: _ClientConnection(wheel, str(address), handler),
            address.host,
            address.port,
            ssl=tls,
            server_hostname=None if tls is None else server_name,
        )
    if prefix:
        transport.write(prefix)
    with ticking(wheel):
        try:
            yield RemotingClient(connection, timeout, credentials)
        finally:
            if close_timeout:
                connection.close(CloseCause.LOCAL)
            else:
                connection.abort(CloseCause.LOCAL)
            with suppress(TimeoutError):
                async with asyncio.timeout(close_timeout or timeout):
                    await connection.closed_event.wait()


def route_fields(topic: str) -> dict[str, str]:
    """Return the ext fields of a GET_ROUTEINFO_BY_TOPIC."""
    return {"topic": topic, "acceptStandardJsonOnly": "true"}


def route_from_reply(topic: str, reply: RemotingCommand) -> TopicRoute | None:
    """Return the route in a response to GET_ROUTEINFO_BY_TOPIC; None if it is an error response. Raises BodyError."""
    return routes.parse(topic, reply.body) if reply.code == ResponseCode.SUCCESS else None

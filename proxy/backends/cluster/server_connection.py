"""A connection to one server, opened on demand and again after it was lost."""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from protocol_negotiation import handshake_failure
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls_client import ClientTlsSource
from proxy.backends.cluster.server_turns import ServerTurns
from proxy.backends.cluster.upstream import Upstream
from proxy.observability.metrics.upstream import UpstreamCounts
from remoting.close_cause import CloseCause
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ServiceUnavailable
from remoting.outcomes import Reply
from remoting.pending_request import LostHandler
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.cluster")

# Maximum number of requests that wait for a connection, and bytes of the oneway ones, or of those that wait to be sent.
# No other limit counts these: each of thousands of clients may send one before it is paused. Further ones are dropped.
_MAX_WAITING = 10_000
MAX_ONEWAY_BYTES = 16 * 2**20


class ServerOptions(NamedTuple):
    """Options that the connections to servers have in common.

    wheel: times out requests. connect_timeout: in seconds. turns: divides the time for replies among the connections.
    tls: None for plain text. dial: address to connect to instead of a server's, host:port or unix:/path.
    """

    wheel: TimeoutWheel
    connect_timeout: float
    upstreams: UpstreamCounts
    turns: ServerTurns
    tls: ClientTlsSource | None = None
    dial: str | None = None


class ServerConnection:
    """Requests to one address over one connection, in order.

    handler: serves the server's requests. on_lost: called after the connection has closed.

    Requests wait while the connection is being established. If that fails, the request was certainly not served, and
    its `unreachable` callback, if given, takes it over.
    """

    def __init__(
        self,
        address: str,
        options: ServerOptions,
        handler: Handler,
        on_lost: Callable[["ServerConnection"], None] | None = None,
    ) -> None:
        self.address = address
        self._options = options
        self._dialled = HostPort.parse(options.dial or address)
        self._handler = handler
        self._on_lost = on_lost
        # The open connection, or None.
        self.connection: RemotingConnection | None = None
        self._waiting: deque[Callable[[RemotingConnection | None], None]] = deque()
        self._oneway_bytes = 0
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        # Times of the loop in seconds: of the attempt to connect in progress, and of the last failure.
        self.dialling_since: float | None = None
        self.failed_at: float | None = None

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: Reply,
        lost: LostHandler | None = None,
        unreachable: LostHandler | None = None,
    ) -> None:
        """Send a request whose reply is set on `future`; see RemotingConnection.request."""
        if self.connection is not None:
            self.connection.request(command, timeout, future, lost)
            return

        def dialled(connection: RemotingConnection | None) -> None:
            if future.done():
                return
            try:
                if connection is not None:
                    connection.request(command, timeout, future, lost)
                elif unreachable is not None:
                    unreachable(command, future)
                else:
                    future.set_exception(ServiceUnavailable(f"{self.address} cannot be reached"))
            except Exception as error:
                # Otherwise, this request would never be answered.
                if not future.done():
                    future.set_exception(error)

        self._dial(dialled)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a oneway request; it is dropped if the server cannot be reached, or does not read."""
        connection = self.connection
        if connection is not None:
            if connection.unread_bytes < MAX_ONEWAY_BYTES:
                connection.oneway(command)
        elif len(self._waiting) < _MAX_WAITING and self._oneway_bytes < MAX_ONEWAY_BYTES:
            self._oneway_bytes += command.memory
            self._dial(lambda connection: None if connection is None else connection.oneway(command))

    def close(self) -> None:
        """Close the connection for the last time."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        if self.connection is not None:
            self.connection.close(CloseCause.LOCAL)

    def _dial(self, then: Callable[[RemotingConnection | None], None]) -> None:
        if self._closed:
            then(None)
            return
        self._waiting.append(then)
        if self._dialling is None:
            loop = asyncio.get_running_loop()
            self.dialling_since = loop.time()
            self._dialling = loop.create_task(self._connect(), name=f"dial {self.address}")

    async def _connect(self) -> None:
        connection = None
        try:
            connection = await self._open()
            self.failed_at = None
        except (OSError, TimeoutError) as error:
            self.failed_at = asyncio.get_running_loop().time()
            self._options.upstreams.failed += 1
            _log.warning("cannot connect to %s: %s", self.address, self._failure(error))
        finally:
            self._dialling = self.dialling_since = None
            self.connection = connection
            waiting, self._waiting = self._waiting, deque()
            self._oneway_bytes = 0
            for then in waiting:
                try:
                    then(connection)
                except Exception:
                    # The other requests must still be sent.
                    _log.exception("sending a request to %s failed", self.address)

    async def _open(self) -> RemotingConnection:
        loop, address, options = asyncio.get_running_loop(), self._dialled, self._options
        tls = options.tls

        def upstream() -> Upstream:
            return Upstream(options.wheel, self._handler, self._lost, self.address, options.turns)

        async with asyncio.timeout(options.connect_timeout):
            if address.is_unix:
                _, connection = await loop.create_unix_connection(upstream, address.unix_path)
            elif tls is None:
                _, connection = await loop.create_connection(upstream, address.host, address.port)
            else:
                _, connection = await loop.create_connection(
                    upstream,
                    address.host,
                    address.port,
                    ssl=tls.context,
                    server_hostname=tls.server_name or address.host,
                )
        self._options.upstreams.opened(connection)
        return connection

    def _failure(self, error: OSError | TimeoutError) -> str:
        """Return the text of a failed attempt to connect; count a failed TLS handshake."""
        if not isinstance(error, ssl.SSLError):
            return str(error) or "timed out"
        cause, text = handshake_failure.explain(error)
        self._options.upstreams.tls_failures[cause] += 1
        return text

    def _lost(self, connection: RemotingConnection) -> None:
        self._options.upstreams.closed(connection)
        if self.connection is connection:
            self.connection = None
        if connection.cause is CloseCause.UNRESPONSIVE:
            self.failed_at = connection.loop.time()
        if not self._closed:
            _log.info("connection to %s closed: %s", self.address, connection.cause)
            if self._on_lost is not None:
                self._on_lost(self)

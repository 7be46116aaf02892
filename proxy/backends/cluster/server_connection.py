"""A link: one connection to one server, dialled when it is needed and again after it was lost."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from proxy.observability.metrics.upstream import Upstreams
from remoting.command import RemotingCommand
from remoting.connection import CloseCause, Handler, RemotingConnection
from remoting.errors import ServiceUnavailable
from remoting.flow_control import Limits
from remoting.pending_request import LostHandler
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.cluster")

Reply = asyncio.Future[RemotingCommand]

# Oneway requests beyond these are dropped while a connection is dialled.
_MAX_WAITING = 10_000

# Ours to a broker: many clients' requests share it, so the bounds of a single client do not fit.
_LIMITS = Limits(requests=1_000_000, polls=1_000_000, request_bytes=2**40, hard_buffer=2**40)


class Upstream(RemotingConnection):
    """Our end of a connection to a server.

    Its answers are read while our requests wait to be written: a broker that cannot write reads no
    further either, so both ends would wait for each other. And one that says nothing at all while a
    request runs out of time is given up, with all its requests.
    """

    __slots__ = ()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self.resume_sources()

    def on_request_timeout(self, timeout: float) -> None:
        if self.loop.time() - self.read_at >= timeout and not self.closed:
            _log.warning("%s has said nothing for %.0f s and is given up", self.name, timeout)
            self.abort(CloseCause.UNRESPONSIVE)


class ServerConnection:
    """Requests to one address over one connection, in the order in which they were made.

    Requests made while the connection is being dialled wait for it. `unreachable`, where given with
    a request, takes the request over when dialling failed, that is when it was certainly not served.
    """

    def __init__(
        self,
        address: str,
        wheel: TimeoutWheel,
        handler: Handler,
        connect_timeout: float,
        on_lost: Callable[["ServerConnection"], None] | None = None,
        upstreams: Upstreams | None = None,
    ) -> None:
        self.address = address
        self._wheel = wheel
        self._handler = handler
        self._connect_timeout = connect_timeout
        self._on_lost = on_lost
        self._upstreams = Upstreams() if upstreams is None else upstreams
        # The connection, if there is one now.
        self.connection: RemotingConnection | None = None
        self._waiting: deque[Callable[[RemotingConnection | None], None]] = deque()
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        self.failed_at: float | None = None

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: Reply,
        lost: LostHandler | None = None,
        unreachable: LostHandler | None = None,
    ) -> None:
        """Send a request whose answer goes to `future`; see RemotingConnection.request."""
        if self.connection is not None:
            self.connection.request(command, timeout, future, lost)
            return

        def dialled(connection: RemotingConnection | None) -> None:
            if future.done():
                return
            if connection is not None:
                connection.request(command, timeout, future, lost)
            elif unreachable is not None:
                unreachable(command, future)
            else:
                future.set_exception(ServiceUnavailable(f"{self.address} cannot be reached"))

        self._dial(dialled)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers; it is dropped where the server cannot be reached."""
        if self.connection is not None:
            self.connection.oneway(command)
        else:
            if len(self._waiting) < _MAX_WAITING:
                self._dial(lambda connection: None if connection is None else connection.oneway(command))

    def close(self) -> None:
        """Close the connection; the link is of no use afterwards."""
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
            self._dialling = asyncio.get_running_loop().create_task(self._connect(), name=f"dial {self.address}")

    async def _connect(self) -> None:
        connection = None
        try:
            connection = await self._open()
            self.failed_at = None
        except (OSError, TimeoutError) as error:
            self.failed_at = asyncio.get_running_loop().time()
            self._upstreams.failed += 1
            _log.warning("cannot reach %s: %s", self.address, str(error) or "no answer in time")
        finally:
            self._dialling = None
            self.connection = connection
            waiting, self._waiting = self._waiting, deque()
            for then in waiting:
                then(connection)

    async def _open(self) -> RemotingConnection:
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_timeout):
            _, connection = await loop.create_connection(
                lambda: Upstream(self._wheel, self._handler, self._lost, name=self.address, limits=_LIMITS),
                host.strip("[]"),
                int(port),
            )
        self._upstreams.opened(connection)
        return connection

    def _lost(self, connection: RemotingConnection) -> None:
        self._upstreams.ended(connection)
        if self.connection is connection:
            self.connection = None
        if connection.cause is CloseCause.UNRESPONSIVE:
            self.failed_at = connection.loop.time()
        if not self._closed:
            _log.info("the connection to %s ended: %s", self.address, connection.cause)
            if self._on_lost is not None:
                self._on_lost(self)

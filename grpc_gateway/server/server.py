"""The gRPC server: registration as on grpc.aio's server, connections from the negotiation layer."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from grpc_gateway.http2.channel import CloseCause
from grpc_gateway.server.connection import GrpcConnection
from grpc_gateway.server.deadlines import Deadlines
from grpc_gateway.server.decompressions import Decompressions
from grpc_gateway.server.methods import Registry
from grpc_gateway.server.open_calls import MemoryWatch
from grpc_gateway.server.rpc_status import CODES
from grpc_gateway.server.server_options import DEFAULT_OPTIONS, ServerOptions
from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer
from protocol_negotiation.standstill import GRACE_SECONDS, is_late

OnConnection = Callable[[GrpcConnection], None]

_DRAIN_POLL_SECONDS = 0.05
# Connections to check in one turn of the event loop; checking thousands at once would delay all calls.
_CHECK_BATCH = 500
# Time for handlers to end after their cancellation, and for clients to read the remaining responses.
_CLOSE_TIMEOUT_SECONDS = 5.0


class Server:
    """A gRPC server on connections that another layer accepts: `protocol` makes the protocol of each.

    Handlers are registered as on `grpc.aio.server()`, so generated `add_XServicer_to_server` functions take it.
    Handlers are coroutine functions, asynchronous generator functions, or plain functions that do not block; plain
    generator functions are refused. `on_open` and `on_close` are called with each connection. To be created and used
    in the event loop's thread.
    """

    def __init__(
        self,
        options: ServerOptions = DEFAULT_OPTIONS,
        on_open: OnConnection | None = None,
        on_close: OnConnection | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        self.options = options
        self.connections: set[GrpcConnection] = set()
        # Counts the bytes of requests of connections that are opened from now on.
        self.memory: MemoryWatch | None = None
        # Returns the bytes that the services keep for the clients of a connection.
        self.client_memory: Callable[[GrpcConnection], int] | None = None
        self.loop = asyncio.get_running_loop()
        self._methods = Registry()
        self._deadlines = Deadlines(self.loop, options.deadline_tick)
        self._decompressions = Decompressions()
        self._turns = FairTurns(self.loop) if turns is None else turns
        self._on_open = on_open
        self._on_close = on_close
        self._check_timer: asyncio.TimerHandle | None = None
        self._draining = False

    # Registration, as on grpc.aio.Server.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        """Add handlers that are looked up for each call without a registered method."""
        self._methods.add_generic(generic_rpc_handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Add the methods of a service. Raises TypeError or ValueError for a handler that cannot be run."""
        self._methods.register(service_name, method_handlers)

    # Connections.

    def protocol(self, peer: Peer) -> GrpcConnection:
        """Return the protocol for one connection: a `protocol_negotiation` handler."""
        return GrpcConnection(
            peer,
            self.options,
            self._methods,
            self._deadlines,
            self._decompressions,
            self._connection_opened,
            self._connection_closed,
            self._turns,
            self.memory,
            self.client_memory,
        )

    def _connection_opened(self, connection: GrpcConnection) -> None:
        self.connections.add(connection)
        if self._check_timer is None:
            self._schedule_check()
        if self._on_open is not None:
            self._on_open(connection)
        if self._draining:
            connection.drain()

    def _connection_closed(self, connection: GrpcConnection) -> None:
        self.connections.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def _schedule_check(self) -> None:
        due = self.loop.time() + self.options.check_interval
        self._check_timer = self.loop.call_at(due, self._check_due, due)

    def _check_due(self, due: float) -> None:
        if is_late(self.loop, due):
            self._check_timer = self.loop.call_later(GRACE_SECONDS, self._check_connections)
        else:
            self._check_connections()

    def _check_connections(self) -> None:
        # Scheduled first, so that an error below does not end the checks.
        self._check_timer = None
        if self.connections:
            self._schedule_check()
        self._check_batch(list(self.connections))

    def _check_batch(self, remaining: list[GrpcConnection]) -> None:
        now = self.loop.time()
        for connection in remaining[-_CHECK_BATCH:]:
            connection.check(now)
        del remaining[-_CHECK_BATCH:]
        if remaining:
            self.loop.call_soon(self._check_batch, remaining)

    @property
    def open_streams(self) -> int:
        return sum(connection.open_streams for connection in self.connections)

    def calls(self) -> "Counter[tuple[str, grpc.StatusCode]]":
        """Return the number of ended calls by method (``/package.Service/Method``, or "unknown") and code."""
        totals: Counter[tuple[str, grpc.StatusCode]] = Counter()
        for method in self._methods:
            for number, count in enumerate(method.counts):
                if count:
                    totals[(method.path, CODES[number])] += count
        return totals

    # The end.

    async def drain(self, grace: float) -> None:
        """Send GOAWAY to all clients, let their calls finish for up to `grace` seconds, then `close`."""
        self._draining = True
        for connection in tuple(self.connections):
            connection.drain()
        deadline = self.loop.time() + grace
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        await self.close()

    async def close(self) -> None:
        """Close all connections, cancel their calls, and wait a few seconds for the handlers to end."""
        self._draining = True
        connections = tuple(self.connections)
        for connection in connections:
            connection.end(CloseCause.LOCAL)
        cancelled = [handler for connection in connections for handler in connection.open_calls.cancelled_handlers]
        if cancelled:
            await asyncio.wait(cancelled, timeout=_CLOSE_TIMEOUT_SECONDS)
        deadline = self.loop.time() + _CLOSE_TIMEOUT_SECONDS
        while self.connections:
            if self.loop.time() > deadline:
                for connection in tuple(self.connections):
                    connection.abort(CloseCause.LOCAL)
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        self._deadlines.close()

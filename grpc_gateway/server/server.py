"""The gRPC server: grpc.aio's registration, connections from the negotiation layer."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from grpc_gateway.http2.channel import CloseCause
from grpc_gateway.server.connection import GrpcConnection
from grpc_gateway.server.deadlines import Deadlines
from grpc_gateway.server.methods import Method, Registry
from grpc_gateway.server.options import DEFAULT_OPTIONS, ServerOptions
from grpc_gateway.server.stats import Stats
from grpc_gateway.server.status import CODES
from protocol_negotiation.peer import Peer

OnConnection = Callable[[GrpcConnection], None]

_DRAIN_POLL = 0.05
_CHECKED_AT_ONCE = 500
# Seconds that handlers have to end when their calls were cancelled, and clients to take what is left for them.
_CLOSE_PATIENCE = 5.0
_UNKNOWN_METHOD = "unknown"


class Server:
    """Serves gRPC on connections that `protocol` is made for.

    Handlers are registered as on `grpc.aio.server()`, so generated `add_XServicer_to_server` functions take it.
    `interceptors` are grpc.aio's. `on_open` and `on_close` are called with each connection. To be made and used in
    the event loop's thread.
    """

    def __init__(
        self,
        options: ServerOptions = DEFAULT_OPTIONS,
        interceptors: "Sequence[grpc.aio.ServerInterceptor]" = (),
        on_open: OnConnection | None = None,
        on_close: OnConnection | None = None,
    ) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.methods = Registry()
        self.stats = Stats()
        self.connections: set[GrpcConnection] = set()
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop, options.deadline_tick)
        self.threads = ThreadPoolExecutor(options.threads, "grpc")
        # Counts the calls of methods that nobody serves.
        self.unknown = Method(_UNKNOWN_METHOD, grpc.unary_unary_rpc_method_handler(_nobody))
        self._on_open = on_open
        self._on_close = on_close
        self._sweeper: asyncio.TimerHandle | None = None
        self._draining = False

    # Registration, as grpc.aio.Server has it.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        self.methods.add_generic(generic_rpc_handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        self.methods.register(service_name, method_handlers)

    # Connections.

    def protocol(self, peer: Peer) -> GrpcConnection:
        """The protocol for one connection: a `protocol_negotiation` handler."""
        return GrpcConnection(self, peer)

    def connection_opened(self, connection: GrpcConnection) -> None:
        self.connections.add(connection)
        self.stats.opened += 1
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(self.options.sweep, self._sweep)
        if self._on_open is not None:
            self._on_open(connection)
        if self._draining:
            connection.drain()

    def connection_ended(self, connection: GrpcConnection) -> None:
        self.connections.discard(connection)
        stats, http2 = self.stats, connection.http2
        if connection.cause is not None:
            stats.closed[connection.cause] += 1
        if http2.fault is not None and connection.cause in (CloseCause.ABUSE, CloseCause.PROTOCOL):
            stats.refused[http2.fault.reason] += 1
        stats.resets += http2.resets
        stats.pings += http2.pings
        if self._on_close is not None:
            self._on_close(connection)

    def _sweep(self) -> None:
        # Before anything can go wrong.
        self._sweeper = self.loop.call_later(self.options.sweep, self._sweep) if self.connections else None
        self._check(list(self.connections))

    def _check(self, left: list[GrpcConnection]) -> None:
        """Look at some, and at the rest in the next turns of the loop: thousands at once would hold up all calls."""
        now = self.loop.time()
        for connection in left[-_CHECKED_AT_ONCE:]:
            connection.check(now)
        del left[-_CHECKED_AT_ONCE:]
        if left:
            self.loop.call_soon(self._check, left)

    @property
    def open_streams(self) -> int:
        return sum(connection.open_streams for connection in self.connections)

    def calls(self) -> "Counter[tuple[str, grpc.StatusCode]]":
        """Calls that have ended, by method (``/package.Service/Method``, or "unknown") and code."""
        totals: Counter[tuple[str, grpc.StatusCode]] = Counter()
        for method in (*self.methods, self.unknown):
            for number, count in enumerate(method.counts):
                if count:
                    totals[(method.path, CODES[number])] += count
        return totals

    # Interceptors.

    async def intercepted(
        self, details: grpc.HandlerCallDetails, position: int = 0
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """The handler that the interceptors from `position` on agree to."""
        if position == len(self.interceptors):
            return self.methods.handler(details)

        async def continuation(details: grpc.HandlerCallDetails) -> Any:
            return await self.intercepted(details, position + 1)

        return await self.interceptors[position].intercept_service(continuation, details)

    # The end.

    async def drain(self, grace: float) -> None:
        """Send all clients elsewhere; returns when their calls have finished, or after `grace` seconds.

        Calls that are left then are cancelled, and their connections closed.
        """
        self._draining = True
        for connection in tuple(self.connections):
            connection.drain()
        ends = self.loop.time() + grace
        while self.connections and self.loop.time() < ends:
            await asyncio.sleep(_DRAIN_POLL)
        await self.close()

    async def close(self) -> None:
        """Close all connections now, cancel their calls and wait until the handlers have ended, within reason."""
        self._draining = True
        connections = tuple(self.connections)
        for connection in connections:
            connection.end(CloseCause.LOCAL)
        lingering = [runner for connection in connections for runner in connection.lingering]
        if lingering:
            await asyncio.wait(lingering, timeout=_CLOSE_PATIENCE)
        ends = self.loop.time() + _CLOSE_PATIENCE
        while self.connections:
            if self.loop.time() > ends:
                for connection in tuple(self.connections):
                    connection.abort(CloseCause.LOCAL)
            await asyncio.sleep(_DRAIN_POLL)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self.deadlines.close()
        self.threads.shutdown(wait=False, cancel_futures=True)


async def _nobody(_: Any, __: Any) -> None:
    """Never called."""

"""grpcio's server with the interface of `grpc_gateway.server.Server`."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc

from grpc_gateway.grpcio_transport.interceptor import RelayInterceptor
from grpc_gateway.grpcio_transport.relay import OnRelay, Relay
from grpc_gateway.server import ServerOptions
from protocol_negotiation.peer import Peer

# Prefix of an abstract socket name in grpcio's notation of peers.
_ABSTRACT = "unix-abstract:"


class GrpcioServer:
    """The part of `grpc_gateway.server.Server` that the proxy uses, on grpcio's transport.

    grpcio cannot take over a connection, so each is relayed to it. Call `start` before the first connection.
    """

    def __init__(self, options: ServerOptions, on_open: OnRelay | None = None, on_close: OnRelay | None = None) -> None:
        self.connections: set[Relay] = set()
        self._on_open = on_open
        self._on_close = on_close
        self._by_name: dict[str, Relay] = {}
        # Clients are asked to reconnect at this age, which the relays do not see.
        self._has_max_age = options.timeouts.age is not None
        self._directory = Path(tempfile.mkdtemp(prefix="gantry-grpc-"))
        self._path = str(self._directory / "socket")
        self._interceptor = RelayInterceptor(self._find_relay)
        self._server = grpc.aio.server(interceptors=(self._interceptor,), options=_channel_arguments(options))
        self._server.add_insecure_port(f"unix:{self._path}")

    # Registration, as on grpc.aio.Server.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        self._server.add_generic_rpc_handlers(tuple(generic_rpc_handlers))

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        self._server.add_registered_method_handlers(service_name, dict(method_handlers))

    # Connections.

    async def start(self) -> None:
        """Start to serve relayed connections."""
        await self._server.start()

    def protocol(self, peer: Peer) -> Relay:
        """Return the protocol for one connection: a `protocol_negotiation` handler."""
        return Relay(peer, self._path, self._relay_opened, self._relay_closed)

    @property
    def open_streams(self) -> int:
        return self._interceptor.open_calls

    def calls(self) -> "Counter[tuple[str, grpc.StatusCode]]":
        """Return the number of ended calls by method (``/package.Service/Method``) and code."""
        return self._interceptor.ended_calls

    def _relay_opened(self, relay: Relay) -> None:
        relay.draining = self._has_max_age
        self.connections.add(relay)
        self._by_name[relay.name] = relay
        if self._on_open is not None:
            self._on_open(relay)

    def _relay_closed(self, relay: Relay) -> None:
        if relay in self.connections:
            self.connections.discard(relay)
            del self._by_name[relay.name]
            if self._on_close is not None:
                self._on_close(relay)

    def _find_relay(self, context: Any) -> Relay | None:
        return self._by_name.get(context.peer().removeprefix(_ABSTRACT))

    # The end.

    async def drain(self, grace: float) -> None:
        """Send GOAWAY to all clients, let their calls finish for up to `grace` seconds, then `close`."""
        for relay in self.connections:
            relay.cause = "drain"
        await self._server.stop(grace)
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._server.stop(None)
        for relay in tuple(self.connections):
            relay.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _channel_arguments(options: ServerOptions) -> list[tuple[str, int]]:
    timeouts, limits = options.timeouts, options.limits
    arguments = {
        "grpc.max_receive_message_length": options.max_receive_message,
        "grpc.max_send_message_length": options.max_send_message,
        "grpc.max_concurrent_streams": limits.concurrent_streams,
        "grpc.max_metadata_size": limits.header_list,
        # C++ clients ping every 60 s, with and without calls, which grpcio's defaults count as abuse.
        "grpc.http2.min_recv_ping_interval_without_data_ms": int(limits.ping_interval * 1000),
        "grpc.http2.max_ping_strikes": limits.ping_strikes,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.keepalive_timeout_ms": int(timeouts.ping_timeout * 1000),
        "grpc.so_reuseport": 0,
    }
    if timeouts.ping_after is not None:
        arguments["grpc.keepalive_time_ms"] = int(timeouts.ping_after * 1000)
    if timeouts.idle is not None:
        arguments["grpc.max_connection_idle_ms"] = int(timeouts.idle * 1000)
    if timeouts.age is not None:
        arguments["grpc.max_connection_age_ms"] = int(timeouts.age * 1000)
        arguments["grpc.max_connection_age_grace_ms"] = int(timeouts.drain * 1000)
    return list(arguments.items())

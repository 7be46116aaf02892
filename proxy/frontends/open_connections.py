"""The open connections of a replica, of both protocols, as the monitor of the memory sees them."""

from collections.abc import Iterator, Sequence
from typing import cast

from grpc_gateway.server import GrpcConnection
from proxy.core.channel import Channel
from proxy.core.remoting_channel import RemotingChannel
from proxy.frontends.grpc_frontend import GrpcFrontend
from proxy.frontends.remoting_frontend import RemotingFrontend
from proxy.overload.holders import Connection


class OpenConnections:
    """The connections of both frontends. Without those of grpcio, which limits their memory itself."""

    def __init__(self, remoting: RemotingFrontend, grpc: GrpcFrontend) -> None:
        self._remoting = remoting
        self._grpc = grpc

    def __iter__(self) -> Iterator[Connection]:
        yield from self._remoting.channels
        yield from self._remoting.broker_channels
        for connection in self._grpc.server.connections:
            if isinstance(connection, GrpcConnection):
                yield connection

    def channels_of(self, connection: Connection) -> Sequence[Channel]:
        """Return the clients on a connection."""
        if isinstance(connection, RemotingChannel):
            return (connection,)
        return cast(Sequence[Channel], self._grpc.clients.of(connection))

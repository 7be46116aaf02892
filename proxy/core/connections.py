"""Events of client connections, remoting and gRPC, for listeners: opened and closed."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpc_gateway.clients.client_table import ClientTable
from protocol_negotiation.peer import Peer
from proxy.core.channel import UNIDENTIFIED, ChannelProtocol, Identity
from proxy.core.remoting_channel import RemotingChannel

_log = logging.getLogger("gantry.connections")


class Connection(Protocol):
    """Counters and times of a connection. opened_at: in seconds of the loop's clock; cause: the close cause."""

    @property
    def peer(self) -> Peer: ...
    @property
    def cause(self) -> Any: ...
    @property
    def opened_at(self) -> float: ...
    @property
    def requests(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A connection has opened (cause None) or closed. `peer.number` identifies it."""

    protocol: ChannelProtocol
    connection: Connection
    identity: Identity
    cause: str | None = None

    @property
    def peer(self) -> Peer:
        return self.connection.peer


# Called on the event loop: must not block.
ConnectionListener = Callable[[ConnectionEvent], None]


def opened(protocol: ChannelProtocol, connection: Connection) -> ConnectionEvent:
    """Return the event of an opened connection, whose client is not identified yet."""
    return ConnectionEvent(protocol, connection, UNIDENTIFIED)


def remoting_closed(channel: RemotingChannel) -> ConnectionEvent:
    """Return the event of a closed remoting connection, with the identity of its client."""
    return ConnectionEvent("remoting", channel, channel.identity, str(channel.cause))


def grpc_closed(connection: Connection, clients: ClientTable) -> ConnectionEvent:
    """Return the event of a closed gRPC connection, with an identity if exactly one client used it."""
    connected = clients.of(connection)
    identity = UNIDENTIFIED
    if len(connected) == 1:
        identity = getattr(connected[0], "identity", UNIDENTIFIED)
    return ConnectionEvent("grpc", connection, identity, str(connection.cause))


def notify(listeners: Sequence[ConnectionListener], event: ConnectionEvent) -> None:
    """Call every listener; an exception of a listener is logged and does not affect the connection."""
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            _log.exception("connection listener failed")

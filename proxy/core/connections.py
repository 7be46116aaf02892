"""Connections of clients, of either protocol, as those who keep records of them see it: one opens, one closes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpc_gateway.clients.client_table import Clients
from protocol_negotiation.peer import Peer
from proxy.core.channel import UNIDENTIFIED, ChannelProtocol, Identity
from proxy.core.remoting_channel import RemotingChannel

_log = logging.getLogger("gantry.connections")


class Connection(Protocol):
    """What a connection knows of itself. opened_at: seconds of the loop's clock; cause: why it closed."""

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
    """A connection has opened (cause None), or closed. `peer.number` is its number."""

    protocol: ChannelProtocol
    connection: Connection
    identity: Identity
    cause: str | None = None

    @property
    def peer(self) -> Peer:
        return self.connection.peer


# Called on the event loop.
ConnectionListener = Callable[[ConnectionEvent], None]


def opened(protocol: ChannelProtocol, connection: Connection) -> ConnectionEvent:
    """A connection has opened: nobody has said anything yet."""
    return ConnectionEvent(protocol, connection, UNIDENTIFIED)


def remoting_closed(channel: RemotingChannel) -> ConnectionEvent:
    """A remoting connection has closed: it was one client."""
    return ConnectionEvent("remoting", channel, channel.identity, str(channel.cause))


def grpc_closed(connection: Connection, clients: Clients) -> ConnectionEvent:
    """A gRPC connection has closed: it may have been many clients, or none that said who it is."""
    present = clients.of(connection)
    identity = UNIDENTIFIED
    if len(present) == 1:
        identity = getattr(present[0], "identity", UNIDENTIFIED)
    return ConnectionEvent("grpc", connection, identity, str(connection.cause))


def notify(listeners: Sequence[ConnectionListener], event: ConnectionEvent) -> None:
    """Tell everybody who wants to know."""
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            # The connection, and what has to be done at its end, is none of its business.
            _log.exception("a connection listener failed")

"""Connection limits: counts of open connections, and rejection of those over a limit."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakSet

from protocol_negotiation.connection import Handler as Accept
from protocol_negotiation.detect import Protocol
from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.core.connections import Connection, ConnectionEvent
from proxy.traffic_rules.effects import ActiveRule
from proxy.traffic_rules.matching import Attributes
from proxy.traffic_rules.model import ConnectionLimit
from proxy.traffic_rules.rejection import REJECTORS, GrpcRejector, RemotingRejector
from proxy.traffic_rules.request_attributes import ConnectionAttributes


class ActiveConnectionLimit(ActiveRule[ConnectionLimit]):
    """Counts the open connections that match, separately by the attributes in `per`."""

    def __init__(self, rule: ConnectionLimit, dry_run: bool) -> None:
        super().__init__(rule, dry_run)
        self._open: dict[Hashable, int] = {}

    def _key(self, connection: Attributes) -> Hashable:
        return tuple(connection.address if name == "address" else connection.listener for name in self.rule.per)

    def reject(self, connection: Attributes) -> str | None:
        """Return the error text if a new connection would exceed the limit, else None."""
        if not self.matches(connection):
            return None
        self.counts.matched += 1
        if self._open.get(self._key(connection), 0) < self.rule.most or not self.hit():
            return None
        return f"connection limit of {self.rule.most} reached (rule {self.name})"

    def opened(self, connection: Attributes) -> None:
        """Count a connection that has opened."""
        if self.matches(connection):
            key = self._key(connection)
            self._open[key] = self._open.get(key, 0) + 1

    def closed(self, connection: Attributes) -> None:
        """Stop counting a connection that has closed."""
        if self.matches(connection):
            key = self._key(connection)
            remaining = self._open.get(key, 0) - 1
            if remaining > 0:
                self._open[key] = remaining
            else:
                self._open.pop(key, None)


class ConnectionLimiter:
    """Applies the connection limits in force to new connections.

    on_reject: called with the name of the rule and a description of the connection.
    """

    def __init__(self, on_reject: Callable[[str, str], None]) -> None:
        self.limits: Sequence[ActiveConnectionLimit] = ()
        self._on_reject = on_reject
        self._open: dict[Connection, ConnectionAttributes] = {}
        self._rejected: WeakSet[RemotingRejector | GrpcRejector] = WeakSet()

    def apply(self, limits: Sequence[ActiveConnectionLimit]) -> None:
        """Replace the limits. Open connections count towards the new ones."""
        self.limits = limits
        for connection in self._open.values():
            for limit in limits:
                limit.opened(connection)

    def wrap_accept(self, protocol: Protocol, accept: Accept) -> Accept:
        """Return a connection handler that rejects connections over a limit and passes the others to `accept`."""
        name: ChannelProtocol = "remoting" if protocol is Protocol.REMOTING else "grpc"

        def accept_within_limits(peer: Peer) -> asyncio.BaseProtocol:
            if self.limits:
                connection = ConnectionAttributes(peer, name)
                for limit in self.limits:
                    text = limit.reject(connection)
                    if text is not None:
                        self._on_reject(limit.name, f"{name} from {peer.address}")
                        return self.reject(protocol, text)
            return accept(peer)

        return accept_within_limits

    def reject(self, protocol: Protocol, text: str) -> asyncio.BaseProtocol:
        """Return a connection handler that answers with the error text and closes the connection."""
        rejector = REJECTORS[protocol](text)
        self._rejected.add(rejector)
        return rejector

    def on_connection_event(self, event: ConnectionEvent) -> None:
        """Connection listener: count connections as they open and close."""
        if event.cause is None:
            connection = self._open[event.connection] = ConnectionAttributes(event.peer, event.protocol)
            for limit in self.limits:
                limit.opened(connection)
        else:
            closed = self._open.pop(event.connection, None)
            if closed is not None:
                for limit in self.limits:
                    limit.closed(closed)

    def close(self) -> None:
        """Close rejected connections that are still open."""
        for rejector in self._rejected:
            rejector.close()

"""Bound on the open connections of one source address."""

from asyncio import BaseTransport
from collections.abc import Callable
from ipaddress import IPv6Address
from weakref import ref

from protocol_negotiation.peer import HostPort

# Bits of an IPv6 address that name a network. One host usually has all addresses of a /64 (RFC 6177, RFC 4291).
_IPV6_NETWORK_BITS = 64
_SWEEP_INTERVAL_SECONDS = 0.1


def source_of(address: HostPort) -> str | int | None:
    """Return the key under which connections from `address` are counted; None for Unix sockets.

    An IPv4 address counts alone, an IPv6 address with its /64 network.
    """
    if address.is_unix:
        return None
    if ":" not in address.host:
        return address.host
    ip = address.ip
    return int(ip) >> (128 - _IPV6_NETWORK_BITS) if isinstance(ip, IPv6Address) else None


class _OpenConnection(ref[BaseTransport]):
    """Weak reference to a transport, so that a counted connection has no further cost."""

    __slots__ = ("source",)

    source: str | int


class _Source:
    """Open connections of one source, and the time of the next sweep."""

    __slots__ = ("connections", "next_sweep")

    def __init__(self) -> None:
        self.connections: set[_OpenConnection] = set()
        self.next_sweep = 0.0


class AddressLimit:
    """Counts open connections by source and refuses those above `limit`; 0 is unlimited. `clock` is in seconds."""

    __slots__ = ("_clock", "_sources", "limit")

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._sources: dict[str | int, _Source] = {}

    def __len__(self) -> int:
        """Return the number of sources with open connections."""
        return len(self._sources)

    def admit(self, transport: BaseTransport, address: HostPort) -> bool:
        """Count a connection until its transport is closed; return False if the limit of its source is reached."""
        key = source_of(address) if self.limit else None
        if key is None:
            return True
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source()
        if len(source.connections) >= self.limit:
            self._sweep(source)
            if len(source.connections) >= self.limit:
                return False
        connection = _OpenConnection(transport, self._collected)
        connection.source = key
        source.connections.add(connection)
        return True

    def _sweep(self, source: _Source) -> None:
        # Closed transports stay until they are collected; a flood must not sweep at every accept.
        now = self._clock()
        if now >= source.next_sweep:
            source.next_sweep = now + _SWEEP_INTERVAL_SECONDS
            source.connections = {
                connection
                for connection in source.connections
                if (transport := connection()) is not None and not transport.is_closing()
            }

    def _collected(self, connection: ref[BaseTransport]) -> None:
        assert isinstance(connection, _OpenConnection)
        source = self._sources.get(connection.source)
        if source is not None:
            source.connections.discard(connection)
            if not source.connections:
                del self._sources[connection.source]

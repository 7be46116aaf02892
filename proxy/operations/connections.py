"""Client connections: open ones, closed ones, and disconnection."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

from pydantic import Field

from grpc_gateway.grpcio_transport import Relay
from grpc_gateway.http2.channel import CloseCause as GrpcCloseCause
from grpc_gateway.server.connection import GrpcConnection
from proxy.core.channel import Channel, ChannelProtocol
from proxy.core.remoting_channel import RemotingChannel
from proxy.operations import paging
from proxy.operations.event_log import ConnectionEnd
from proxy.operations.failures import not_found
from proxy.operations.operation import operation
from proxy.operations.paging import PageRequest, Place
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import SortedPage, newest
from proxy.operations.values import Answer, Timestamp, WorkerOwned, at
from remoting.close_cause import CloseCause

# A connection of either protocol.
Transport = RemotingChannel | GrpcConnection | Relay


class Connection(WorkerOwned):
    """An open connection."""

    number: int | str = Field(description="unique in this process; traffic records have it too", examples=[17])
    protocol: ChannelProtocol
    listener: str = Field(examples=[":8080"])
    address: str = Field(description="the client's", examples=["192.0.2.7:51234"])
    local: str = Field(description="the address that the client connected to", examples=["198.51.100.9:8080"])
    via: str | None = Field(description="the load balancer that sent a PROXY header", examples=[None])
    tls: str | None = Field(description="TLS version", examples=["TLSv1.3"])
    subject: str | None = Field(description="subject of the client's certificate", examples=[None])
    clients: list["ConnectionClient"]
    in_flight: int = Field(description="requests without a response, or open gRPC calls")
    requests: int = Field(description="requests since it was opened")
    bytes_in: int
    bytes_out: int
    age: float = Field(description="seconds since it was opened")
    idle: float = Field(description="seconds since data was read")


class ConnectionClient(Answer):
    """A client on a connection."""

    client_id: str | None = Field(examples=["192.0.2.7@4711"])
    language: str | None = Field(examples=["JAVA"])
    version: str | None = Field(examples=["5.4.0"])
    producer_groups: list[str]
    consumer_groups: list[str] = Field(examples=[["orders-billing"]])


class ClosedConnection(WorkerOwned):
    """A connection that has ended."""

    number: int | str = Field(examples=[16])
    closed: Timestamp
    protocol: ChannelProtocol
    listener: str
    address: str
    tls: bool
    client_id: str | None
    language: str | None
    version: str | None
    cause: str = Field(description="what ended it", examples=["peer"])
    age: float = Field(description="seconds that it was open")
    requests: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ConnectionFilter:
    """Which connections to list; None: any."""

    protocol: str | None = None
    tls: bool | None = None
    client_id: str | None = None
    language: str | None = None
    listener: str | None = None
    address: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionQuery:
    """A page of the connections that pass a filter."""

    filter: ConnectionFilter
    page: PageRequest


class Connections:
    """The connections of a replica."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._replica = services.replica

    def all(self) -> Iterator[Transport]:
        """Yield every open connection."""
        yield from transports(self._replica)

    def get(self, number: int) -> Transport:
        """Return the open connection with this number. Raises OperationFailed."""
        for transport in self.all():
            if transport.peer.number == number:
                return transport
        raise not_found(f"no open connection has the number {number}")

    def matches(self, transport: Transport, query: ConnectionFilter) -> bool:
        """Return whether a connection passes the filter."""
        peer = transport.peer
        if (
            (query.protocol is not None and query.protocol != protocol(transport))
            or (query.tls is not None and query.tls != (peer.tls is not None))
            or (query.listener is not None and query.listener != peer.listener)
            or (query.address is not None and query.address not in (peer.address.host, str(peer.address)))
        ):
            return False
        if query.client_id is None and query.language is None and query.group is None:
            return True
        return any(self._client_matches(channel, query) for channel in channels(self._replica, transport))

    def _client_matches(self, channel: Channel, query: ConnectionFilter) -> bool:
        identity = channel.identity
        if query.client_id is not None and query.client_id != identity.client_id:
            return False
        if query.language is not None and query.language.upper() != (identity.language or "").upper():
            return False
        if query.group is None:
            return True
        producers, consumers = self._groups(channel)
        return query.group in producers or query.group in consumers

    def describe(self, transport: Transport) -> Connection:
        """Return the description of a connection."""
        peer, clock = transport.peer, self._services.loop.time()
        return Connection(
            **self._services.placement,
            number=self._services.connection_id(peer.number),
            protocol=protocol(transport),
            listener=peer.listener,
            address=str(peer.address),
            local=str(peer.local),
            via=None if peer.via is None else str(peer.via),
            tls=None if peer.tls is None else peer.tls.version,
            subject=None if peer.tls is None else peer.tls.subject,
            clients=[self._client(channel) for channel in channels(self._replica, transport)],
            in_flight=in_flight(transport),
            requests=transport.requests,
            bytes_in=transport.received_bytes,
            bytes_out=transport.sent_bytes,
            age=round(clock - transport.opened_at, 3),
            idle=max(round(clock - transport.read_at, 3), 0.0),
        )

    def _client(self, channel: Channel) -> ConnectionClient:
        identity = channel.identity
        producers, consumers = self._groups(channel)
        return ConnectionClient(
            client_id=identity.client_id,
            language=identity.language,
            version=identity.version,
            producer_groups=sorted(producers),
            consumer_groups=sorted(consumers),
        )

    def _groups(self, channel: Channel) -> tuple[frozenset[str], frozenset[str]]:
        member = self._replica.registry.member(channel)
        groups = None if member is None else member.groups
        return (frozenset(), frozenset()) if groups is None else (groups.producers, groups.consumers)


def transports(replica: Replica) -> Iterator[Transport]:
    """Yield every open connection."""
    yield from list(replica.channels)
    # A type checker cannot derive the union.
    yield from cast(Iterable[Transport], tuple(replica.grpc.server.connections))


def channels(replica: Replica, transport: Transport) -> tuple[Channel, ...]:
    """Return the clients that use a connection."""
    if isinstance(transport, RemotingChannel):
        return (transport,)
    return replica.grpc.clients.of(transport)  # type: ignore[return-value]  # made by GrpcChannel


def protocol(transport: Transport) -> ChannelProtocol:
    """Return the protocol of a connection."""
    return "remoting" if isinstance(transport, RemotingChannel) else "grpc"


def in_flight(transport: Transport) -> int:
    """Return the number of requests without a response."""
    if isinstance(transport, RemotingChannel):
        return transport.in_flight
    return transport.open_streams if isinstance(transport, GrpcConnection) else 0


# Sort keys of connections; each gives values of one type.
SORT_KEYS: dict[str, Callable[[Transport], Any]] = {
    "age": lambda transport: -transport.opened_at,
    "address": lambda transport: str(transport.peer.address),
    "in_flight": in_flight,
    "bytes_in": lambda transport: transport.received_bytes,
    "bytes_out": lambda transport: transport.sent_bytes,
    "idle": lambda transport: -transport.read_at,
}
# Columns that are times of the loop's clock, which differ between replicas.
_TIMES = frozenset(("age", "idle"))


@operation("connections.list")
async def list_connections(services: AdminServices, query: ConnectionQuery) -> SortedPage[Connection]:
    """Return a page of open connections."""
    connections = Connections(services)
    name = query.page.order.key
    key, offset = SORT_KEYS[name], -services.clock_offset if name in _TIMES else 0

    def place(transport: Transport) -> Place:
        return services.place(key(transport) + offset if offset else key(transport), transport.peer.number)

    cut = await paging.cut(
        connections.all(), lambda transport: connections.matches(transport, query.filter), place, query.page
    )
    items = await paging.described(cut.items, connections.describe)
    return SortedPage(query.page.order.descending, list(zip(cut.places, items, strict=True)), cut.rest, cut.total)


@operation("connections.get", merged=False)
async def get_connection(services: AdminServices, number: int) -> Connection:
    """Return one open connection. Raises OperationFailed."""
    connections = Connections(services)
    return connections.describe(connections.get(number))


@operation("connections.disconnect", merged=False, writes=True)
async def disconnect(services: AdminServices, number: int) -> None:
    """End a connection after the bytes that have been written. Raises OperationFailed."""
    transport = Connections(services).get(number)
    if isinstance(transport, RemotingChannel):
        transport.close(CloseCause.OPERATOR)
    elif isinstance(transport, GrpcConnection):
        transport.end(GrpcCloseCause.OPERATOR)
    else:
        transport.cause = GrpcCloseCause.OPERATOR
        transport.close()


@operation("connections.closed")
async def list_closed_connections(services: AdminServices, limit: int) -> SortedPage[ClosedConnection]:
    """Return the connections that were closed last."""

    def describe(end: ConnectionEnd) -> ClosedConnection:
        fields = {**asdict(end), "number": services.connection_id(end.number), "age": round(end.age, 3)}
        return ClosedConnection(**services.placement, closed=at(fields.pop("at")), **fields)

    ends = ((end.at, number, end) for number, end in services.events.closed.newest())
    return newest(services.workers.number, ends, describe, limit)

"""Connections of clients: those that are open, those that were, and ending one."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pydantic import Field

from grpc_gateway.grpcio_transport import Relay
from grpc_gateway.http2.channel import CloseCause as GrpcCloseCause
from grpc_gateway.server.connection import GrpcConnection
from proxy.core.channel import Channel, ChannelProtocol
from proxy.core.remoting_channel import RemotingChannel
from proxy.operations.event_log import Closed
from proxy.operations.replica import Replica
from proxy.operations.values import Answer, at
from remoting.connection import CloseCause

Raw = RemotingChannel | GrpcConnection | Relay


class Connection(Answer):
    """An open connection."""

    number: int = Field(description="unique in this process; traffic records have it too", examples=[17])
    protocol: ChannelProtocol
    listener: str = Field(examples=[":8080"])
    address: str = Field(description="the client's", examples=["192.0.2.7:51234"])
    local: str = Field(description="what the client dialled", examples=["198.51.100.9:8080"])
    via: str | None = Field(description="the proxy in between, where a PROXY header came", examples=[None])
    tls: str | None = Field(description="TLS version", examples=["TLSv1.3"])
    subject: str | None = Field(description="of the client's certificate", examples=[None])
    clients: list["ConnectionClient"]
    in_flight: int = Field(description="unanswered requests, or open calls")
    requests: int = Field(description="that it has carried")
    bytes_in: int
    bytes_out: int
    age: float = Field(description="seconds since it was opened")
    idle: float = Field(description="seconds since something was read")


class ConnectionClient(Answer):
    """A client on a connection."""

    client_id: str | None = Field(examples=["192.0.2.7@4711"])
    language: str | None = Field(examples=["JAVA"])
    version: str | None = Field(examples=["5.4.0"])
    producer_groups: list[str]
    consumer_groups: list[str] = Field(examples=[["orders-billing"]])


class ClosedConnection(Answer):
    """A connection that has ended."""

    number: int = Field(examples=[16])
    closed: datetime
    protocol: ChannelProtocol
    listener: str
    address: str
    tls: bool
    client_id: str | None
    language: str | None
    version: str | None
    cause: str = Field(description="who or what ended it", examples=["peer"])
    age: float = Field(description="seconds that it was open")
    requests: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which connections; None: any."""

    protocol: str | None = None
    tls: bool | None = None
    client_id: str | None = None
    language: str | None = None
    listener: str | None = None
    address: str | None = None
    group: str | None = None


class Connections:
    """The connections of a replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._loop = asyncio.get_running_loop()

    def all(self) -> Iterator[Raw]:
        """Every open connection."""
        yield from list(self._replica.channels)
        # Of one kind or the other, which a type checker cannot join.
        yield from cast(Iterable[Raw], tuple(self._replica.grpc.server.connections))

    def find(self, number: int) -> Raw | None:
        """The open connection with this number."""
        return next((raw for raw in self.all() if raw.peer.number == number), None)

    def fits(self, raw: Raw, wanted: Wanted) -> bool:
        """Whether a connection is wanted."""
        peer = raw.peer
        if (
            (wanted.protocol is not None and wanted.protocol != protocol(raw))
            or (wanted.tls is not None and wanted.tls != (peer.tls is not None))
            or (wanted.listener is not None and wanted.listener != peer.listener)
            or (wanted.address is not None and wanted.address not in (peer.address.host, str(peer.address)))
        ):
            return False
        if wanted.client_id is None and wanted.language is None and wanted.group is None:
            return True
        return any(self._client_fits(channel, wanted) for channel in self.channels(raw))

    def _client_fits(self, channel: Channel, wanted: Wanted) -> bool:
        who = channel.identity
        if wanted.client_id is not None and wanted.client_id != who.client_id:
            return False
        if wanted.language is not None and wanted.language.upper() != (who.language or "").upper():
            return False
        if wanted.group is None:
            return True
        producers, consumers = self._groups(channel)
        return wanted.group in producers or wanted.group in consumers

    def channels(self, raw: Raw) -> tuple[Channel, ...]:
        """The clients that use a connection, as the core knows them."""
        if isinstance(raw, RemotingChannel):
            return (raw,)
        return self._replica.grpc.clients.of(raw)  # type: ignore[return-value]  # made by GrpcChannel

    def describe(self, raw: Raw) -> Connection:
        """A connection as it is told."""
        peer, clock = raw.peer, self._loop.time()
        return Connection(
            number=peer.number,
            protocol=protocol(raw),
            listener=peer.listener,
            address=str(peer.address),
            local=str(peer.local),
            via=None if peer.via is None else str(peer.via),
            tls=None if peer.tls is None else peer.tls.version,
            subject=None if peer.tls is None else peer.tls.subject,
            clients=[self._client(channel) for channel in self.channels(raw)],
            in_flight=in_flight(raw),
            requests=raw.requests,
            bytes_in=raw.received_bytes,
            bytes_out=raw.sent_bytes,
            age=round(clock - raw.opened_at, 3),
            idle=round(clock - raw.read_at, 3),
        )

    def _client(self, channel: Channel) -> ConnectionClient:
        who = channel.identity
        producers, consumers = self._groups(channel)
        return ConnectionClient(
            client_id=who.client_id,
            language=who.language,
            version=who.version,
            producer_groups=sorted(producers),
            consumer_groups=sorted(consumers),
        )

    def _groups(self, channel: Channel) -> tuple[frozenset[str], frozenset[str]]:
        member = self._replica.registry.member(channel)
        groups = None if member is None else member.groups
        return (frozenset(), frozenset()) if groups is None else (groups.producers, groups.consumers)


def describe_closed(item: Closed) -> ClosedConnection:
    """A former connection as it is told."""
    return ClosedConnection(
        number=item.number,
        closed=at(item.at),
        protocol=item.protocol,
        listener=item.listener,
        address=item.address,
        tls=item.tls,
        client_id=item.client_id,
        language=item.language,
        version=item.version,
        cause=item.cause,
        age=round(item.age, 3),
        requests=item.requests,
        bytes_in=item.bytes_in,
        bytes_out=item.bytes_out,
    )


def protocol(raw: Raw) -> ChannelProtocol:
    """What a connection speaks."""
    return "remoting" if isinstance(raw, RemotingChannel) else "grpc"


def in_flight(raw: Raw) -> int:
    """Unanswered requests of a connection."""
    if isinstance(raw, RemotingChannel):
        return raw.in_flight
    return raw.open_streams if isinstance(raw, GrpcConnection) else 0


def disconnect(raw: Raw) -> None:
    """End a connection, after what has been written is out."""
    if isinstance(raw, RemotingChannel):
        raw.close(CloseCause.OPERATOR)
    elif isinstance(raw, GrpcConnection):
        raw.end(GrpcCloseCause.OPERATOR)
    else:
        raw.cause = GrpcCloseCause.OPERATOR
        raw.close()


# What connections can be sorted by; each gives values of one type.
SORTS: dict[str, Callable[[Raw], Any]] = {
    "age": lambda raw: -raw.opened_at,
    "address": lambda raw: str(raw.peer.address),
    "in_flight": in_flight,
    "bytes_in": lambda raw: raw.received_bytes,
    "bytes_out": lambda raw: raw.sent_bytes,
    "idle": lambda raw: -raw.read_at,
}

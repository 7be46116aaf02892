"""Clients by id, with all their connections and both protocols."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from proxy.core.channel import Channel
from proxy.core.client_registry import Member
from proxy.operations import connections, paging
from proxy.operations.cooperative_yield import CooperativeYield
from proxy.operations.failures import not_found
from proxy.operations.operation import operation
from proxy.operations.paging import PageRequest, Place
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries, Holders, NamedPage
from proxy.operations.values import Mergeable, Rules, concatenation, either, smallest, union


class Client(Mergeable):
    """A connected client."""

    MERGE_KEY = ("client_id",)
    MERGE_RULES: ClassVar[Rules] = {
        "protocols": union,
        "addresses": union,
        "connections": concatenation,
        "producer_groups": union,
        "consumer_groups": union,
        "telemetry": either,
        "heartbeat": smallest,
        "tls": union,
        "replicas": union,
    }

    client_id: str = Field(examples=["192.0.2.7@4711"])
    protocols: list[str] = Field(examples=[["remoting"]])
    addresses: list[str] = Field(examples=[["192.0.2.7:51234"]])
    language: str | None = Field(examples=["JAVA"])
    version: str | None = Field(examples=["5.4.0"])
    connections: list[int | str] = Field(description="numbers of its connections", examples=[[17]])
    tls: list[str] = Field(description="TLS versions of its connections; `none`: plain text", examples=[["TLSv1.3"]])
    replicas: list[str] = Field(description="replicas that it is connected to", examples=[["gantry-0"]])
    producer_groups: list[str]
    consumer_groups: list[str] = Field(examples=[["orders-billing"]])
    telemetry: bool | None = Field(description="whether it has a telemetry stream; null: not a gRPC client")
    heartbeat: float | None = Field(description="seconds since its last heartbeat; null: none so far")


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """A page of the clients with this protocol and language; None: any."""

    protocol: str | None
    language: str | None
    page: PageRequest


@dataclass(slots=True)
class ClientChannels:
    """All channels of one client id, and the numbers of its connections."""

    client_id: str
    channels: list[Channel] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)


async def _find(services: AdminServices, client_id: str | None = None) -> list[ClientChannels]:
    """Return the clients that have identified themselves, or the one with this id."""
    replica = services.replica
    found: dict[str, ClientChannels] = {}
    pause = CooperativeYield()
    for transport in connections.transports(replica):
        await pause.checkpoint()
        for channel in connections.channels(replica, transport):
            identity = channel.identity.client_id
            if identity is not None and client_id in (None, identity):
                client = found.setdefault(identity, ClientChannels(identity))
                if channel not in client.channels:
                    client.channels.append(channel)
                client.connections.append(transport.peer.number)
    for grpc_client in replica.grpc.clients:
        # A client without connections may return; until its session expires it is a member of its groups.
        if not grpc_client.connections and client_id in (None, grpc_client.client_id):
            client = found.setdefault(grpc_client.client_id, ClientChannels(grpc_client.client_id))
            client.channels.append(grpc_client)  # type: ignore[arg-type]  # made by GrpcChannel
    return list(found.values())


def _describe(services: AdminServices, client: ClientChannels) -> Client:
    members = list(_members(services, client))
    groups = [member.groups for member in members]
    last_seen = max((member.last_heartbeat_at for member in members), default=None)
    identity = client.channels[0].identity
    return Client(
        client_id=client.client_id,
        protocols=sorted({channel.protocol for channel in client.channels}),
        addresses=sorted({str(channel.peer.address) for channel in client.channels}),
        language=identity.language,
        version=identity.version,
        connections=[services.connection_id(number) for number in sorted(client.connections)],
        tls=sorted({channel.peer.tls.version if channel.peer.tls else "none" for channel in client.channels}),
        replicas=[services.peers.name],
        producer_groups=sorted({name for group in groups for name in group.producers}),
        consumer_groups=sorted({name for group in groups for name in group.consumers}),
        telemetry=_has_telemetry(client.channels),
        heartbeat=None if last_seen is None else round(max(time.monotonic() - last_seen, 0.0), 3),
    )


def _members(services: AdminServices, client: ClientChannels) -> Iterator[Member]:
    for channel in client.channels:
        member = services.replica.registry.member(channel)
        if member is not None:
            yield member


def _has_telemetry(channels: list[Any]) -> bool | None:
    streams = [channel.stream for channel in channels if channel.protocol == "grpc"]
    return any(stream is not None for stream in streams) if streams else None


@operation("clients.list")
async def list_clients(services: AdminServices, query: ClientQuery) -> NamedPage[Client]:
    """Return a page of connected clients, by id."""

    def matches(client: ClientChannels) -> bool:
        return any(
            (query.protocol is None or channel.protocol == query.protocol)
            and (query.language is None or (channel.identity.language or "").upper() == query.language.upper())
            for channel in client.channels
        )

    clients = [client for client in await _find(services) if matches(client)]
    cut = await paging.cut(clients, lambda _: True, lambda client: Place("", 0, client.client_id), query.page)
    items = await paging.described(cut.items, partial(_describe, services))
    return NamedPage(services.workers.number, sorted(client.client_id for client in clients), items)


@operation("clients.get")
async def get_client(services: AdminServices, client_id: str) -> Entries[Client]:
    """Return one client. Raises OperationFailed."""
    clients = await _find(services, client_id)
    if not clients:
        raise not_found(f"no client {client_id} is connected here")
    return Entries(services.workers.number, [_describe(services, clients[0])])


@operation("clients.holders")
async def find_holders(services: AdminServices, client_id: str) -> Holders:
    """Return this worker if the client is connected to it."""
    member = services.replica.registry.find(client_id)
    return Holders([] if member is None or member.channel is None else [services.workers.number])

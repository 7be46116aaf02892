"""Clients by id, whatever they speak and over however many connections."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from proxy.core.channel import Channel
from proxy.core.client_registry import Member
from proxy.operations.connections import Connections
from proxy.operations.cooperative_yield import Turns
from proxy.operations.replica import Replica
from proxy.operations.values import Answer


class Client(Answer):
    """A client that is connected here."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    protocols: list[str] = Field(examples=[["remoting"]])
    addresses: list[str] = Field(examples=[["192.0.2.7:51234"]])
    language: str | None = Field(examples=["JAVA"])
    version: str | None = Field(examples=["5.4.0"])
    connections: list[int] = Field(description="numbers of its connections", examples=[[17]])
    producer_groups: list[str]
    consumer_groups: list[str] = Field(examples=[["orders-billing"]])
    telemetry: bool | None = Field(description="whether it has a telemetry stream here; null: it does not speak gRPC")
    heartbeat: float | None = Field(description="seconds since its last heartbeat; null: none came yet")


@dataclass(slots=True)
class Known:
    """All channels of one client id."""

    client_id: str
    channels: list[Channel] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)


async def known(replica: Replica, connections: Connections, wanted: str | None = None) -> list[Known]:
    """Every client here that has said who it is, or the one with this id."""
    found: dict[str, Known] = {}
    turns = Turns()
    for raw in connections.all():
        await turns.take()
        for channel in connections.channels(raw):
            client_id = channel.identity.client_id
            if client_id is not None and wanted in (None, client_id):
                entry = found.setdefault(client_id, Known(client_id))
                if channel not in entry.channels:
                    entry.channels.append(channel)
                entry.connections.append(raw.peer.number)
    for client in replica.grpc.clients:
        # One whose connections are gone is waited for, and still a member of its groups.
        if not client.connections and wanted in (None, client.client_id):
            entry = found.setdefault(client.client_id, Known(client.client_id))
            entry.channels.append(client)  # type: ignore[arg-type]  # made by GrpcChannel
    return list(found.values())


def describe(replica: Replica, entry: Known) -> Client:
    """A client as it is told."""
    members = list(_members(replica, entry))
    groups = [member.groups for member in members]
    newest = max((member.last_heartbeat_at for member in members), default=None)
    who = entry.channels[0].identity
    return Client(
        client_id=entry.client_id,
        protocols=sorted({channel.protocol for channel in entry.channels}),
        addresses=sorted({str(channel.peer.address) for channel in entry.channels}),
        language=who.language,
        version=who.version,
        connections=sorted(entry.connections),
        producer_groups=sorted({name for group in groups for name in group.producers}),
        consumer_groups=sorted({name for group in groups for name in group.consumers}),
        telemetry=_telemetry(entry.channels),
        heartbeat=None if newest is None else round(max(time.monotonic() - newest, 0.0), 3),
    )


def _members(replica: Replica, entry: Known) -> Iterator[Member]:
    for channel in entry.channels:
        member = replica.registry.member(channel)
        if member is not None:
            yield member


def _telemetry(channels: list[Any]) -> bool | None:
    streams = [channel.stream for channel in channels if channel.protocol == "grpc"]
    return any(stream is not None for stream in streams) if streams else None

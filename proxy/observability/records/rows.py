"""Rows of the tables `connections` and `members`, made where it happens: later, nobody would know any more."""

from typing import Any

from proxy.core.channel import Identity
from proxy.core.client_registry import MembershipEvent
from proxy.core.connections import ConnectionEvent
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import VERSION


def connection(origin: Origin, event: ConnectionEvent, now: float, clock: float) -> tuple[Any, ...]:
    """A row of `connections`; now: seconds since 1970, clock: of the loop's clock."""
    peer, connection = event.peer, event.connection
    over: tuple[Any, ...] = (None,) * 5
    if event.cause is not None:
        age = round((clock - connection.opened_at) * 1000)
        over = (event.cause, age, connection.requests, connection.received_bytes, connection.sent_bytes)
    return (
        *_where(origin, now, event.protocol),
        "open" if event.cause is None else "close",
        peer.number,
        *_who(event.identity, peer.address.host),
        peer.address.port,
        peer.listener,
        peer.tls is not None,
        *over,
    )


def member(origin: Origin, movement: MembershipEvent, now: float) -> tuple[Any, ...] | None:
    """A row of `members`; None: not a client of this replica."""
    channel, cause = movement.member.channel, movement.cause
    if channel is None or not channel.peer.listener:
        # Behind another replica; or what stands for all producers here towards brokers.
        return None
    return (
        *_where(origin, now, channel.protocol),
        "joined" if cause is None else "left",
        movement.group,
        movement.role.value,
        *_who(channel.identity, channel.peer.address.host),
        None if cause is None else cause.value,
    )


def _where(origin: Origin, now: float, protocol: str) -> tuple[Any, ...]:
    return VERSION, round(now * 1e6), origin.replica, origin.worker, protocol


def _who(identity: Identity, address: str) -> tuple[Any, ...]:
    client_id, language, version = identity
    return client_id, address, language, version

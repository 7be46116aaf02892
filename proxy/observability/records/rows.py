"""Rows of the tables `connections` and `members`, made at the time of the event while its data is available."""

from typing import Any

from proxy.core.channel import Identity
from proxy.core.client_registry import MembershipEvent
from proxy.core.connections import ConnectionEvent
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import VERSION


def connection(origin: Origin, event: ConnectionEvent, now: float, clock: float) -> tuple[Any, ...]:
    """Return a row of `connections`. `now` is in seconds since 1970, `clock` in seconds of the event loop's clock."""
    peer, connection = event.peer, event.connection
    totals: tuple[Any, ...] = (None,) * 5
    if event.cause is not None:
        age = round((clock - connection.opened_at) * 1000)
        totals = (event.cause, age, connection.requests, connection.received_bytes, connection.sent_bytes)
    return (
        *_origin_columns(origin, now, event.protocol),
        "open" if event.cause is None else "close",
        peer.number,
        *_client_columns(event.identity, peer.address.host),
        peer.address.port,
        peer.listener,
        peer.tls is not None,
        *totals,
    )


def member(origin: Origin, event: MembershipEvent, now: float) -> tuple[Any, ...] | None:
    """Return a row of `members`; None if the member is not a client of this replica."""
    channel, cause = event.member.channel, event.cause
    if channel is None or not channel.peer.listener:
        # A client of another replica, or the inner producer that represents this replica's producers to brokers.
        return None
    return (
        *_origin_columns(origin, now, channel.protocol),
        "joined" if cause is None else "left",
        event.group,
        event.role.value,
        *_client_columns(channel.identity, channel.peer.address.host),
        None if cause is None else cause.value,
    )


def _origin_columns(origin: Origin, now: float, protocol: str) -> tuple[Any, ...]:
    return VERSION, round(now * 1e6), origin.replica, origin.worker, protocol


def _client_columns(identity: Identity, address: str) -> tuple[Any, ...]:
    client_id, language, version = identity
    return client_id, address, language, version

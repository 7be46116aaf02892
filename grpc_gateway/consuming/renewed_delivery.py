"""Deliveries whose invisible duration this replica renews."""

import asyncio
from typing import NamedTuple

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal_events import RenewalEvent
from remoting.command import RemotingCommand


class RenewedDelivery:
    """State of a renewed delivery. Times are seconds of the loop's clock.

    original: the consumer's receipt handle. newest: the handle since the last renewal. due: second of the next
    renewal. claims: settlements in flight, during which the delivery is not renewed. renewing: reply to the renewal
    in flight; is_last_renewal: it is the last one. peer_settlement: settlement by another replica, which has to be
    applied to the handle from the renewal in flight.
    """

    __slots__ = (
        "attempt",
        "claims",
        "client",
        "due",
        "expires",
        "group",
        "is_last_renewal",
        "lite_topic",
        "newest",
        "original",
        "peer_settlement",
        "received_at",
        "renewing",
        "topic",
    )

    def __init__(
        self, client: Client, group: str, topic: str, lite_topic: str, handle: ReceiptHandle, attempt: int, now: float
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.lite_topic = lite_topic
        self.original = handle.text
        self.newest = handle
        self.attempt = attempt
        self.received_at = now
        self.expires = 0.0
        self.due = 0
        self.claims = 0
        self.renewing: asyncio.Future[RemotingCommand] | None = None
        self.peer_settlement: RenewalEvent | None = None
        self.is_last_renewal = False

    def snapshot(self) -> "DeliverySnapshot":
        """Return the state for operators."""
        return DeliverySnapshot(
            self.client,
            self.group,
            self.topic,
            self.lite_topic,
            self.newest,
            self.attempt,
            self.received_at,
            self.expires,
            self.renewing is not None,
        )


class DeliverySnapshot(NamedTuple):
    """A renewed delivery at one moment.

    received_at: when the consumer received it; expires: when the broker delivers it again unless it is renewed.
    Both are seconds of the loop's clock.
    """

    client: Client
    group: str
    topic: str
    lite_topic: str
    newest: ReceiptHandle
    attempt: int
    received_at: float
    expires: float
    renewing: bool

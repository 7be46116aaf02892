"""Deliveries whose receipt handles are renewed while their consumers work on them."""

from pydantic import Field

from grpc_gateway.consuming.renewed_delivery import DeliverySnapshot
from proxy.operations.values import Answer


class ReceiptHandle(Answer):
    """A delivery that is kept invisible. The handle itself is not told: whoever has it can acknowledge."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    group: str = Field(examples=["orders-billing"])
    topic: str = Field(examples=["orders"])
    lite_topic: str | None = Field(examples=[None])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int
    attempt: int = Field(description="delivery attempt, from 1")
    held: float = Field(description="seconds since it was delivered")
    expires: float = Field(description="seconds until it is delivered to somebody else unless renewed again")
    renewing: bool = Field(description="a renewal is under way")


def describe(delivery: DeliverySnapshot, now: float) -> ReceiptHandle:
    """A delivery as it is told; `now` is the loop's time."""
    handle = delivery.newest
    return ReceiptHandle(
        client_id=delivery.client.client_id,
        group=delivery.group,
        topic=delivery.topic,
        lite_topic=delivery.lite_topic or None,
        broker=handle.broker_name,
        queue=handle.queue_id,
        offset=handle.queue_offset,
        attempt=delivery.attempt,
        held=round(now - delivery.received_at, 3),
        expires=round(delivery.expires - now, 3),
        renewing=delivery.renewing,
    )

"""Deliveries whose receipt handles the proxy renews while consumers process them."""

from dataclasses import dataclass

from pydantic import Field

from grpc_gateway.consuming.renewed_delivery import DeliverySnapshot
from proxy.operations import paging
from proxy.operations.operation import operation
from proxy.operations.paging import PageRequest, Place
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import SortedPage
from proxy.operations.values import WorkerOwned


class HeldDelivery(WorkerOwned):
    """A delivery that is kept invisible. The handle itself is left out: it permits acknowledgement."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    group: str = Field(examples=["orders-billing"])
    topic: str = Field(examples=["orders"])
    lite_topic: str | None = Field(examples=[None])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int
    attempt: int = Field(description="delivery attempt, from 1")
    held: float = Field(description="seconds since it was delivered")
    expires: float = Field(description="seconds until it becomes visible again unless it is renewed")
    renewing: bool = Field(description="whether a renewal is in flight")


@dataclass(frozen=True, slots=True)
class DeliveryQuery:
    """A page of the deliveries with this client, group and topic; None: any."""

    client_id: str | None
    group: str | None
    topic: str | None
    page: PageRequest


@operation("receipt_handles.list")
async def list_receipt_handles(services: AdminServices, query: DeliveryQuery) -> SortedPage[HeldDelivery]:
    """Return a page of the deliveries that are kept invisible, by age."""
    worker = services.workers.number

    def matches(delivery: DeliverySnapshot) -> bool:
        return (
            query.client_id in (None, delivery.client.client_id)
            and query.group in (None, delivery.group)
            and query.topic in (None, delivery.topic)
        )

    cut = await paging.cut(
        iter(services.replica.grpc.renewal),
        matches,
        lambda delivery: Place(delivery.received_at + services.clock_offset, worker, delivery.newest.text),
        query.page,
    )
    now = services.loop.time()
    entries = [
        (place, _describe(services, delivery, now)) for place, delivery in zip(cut.places, cut.items, strict=True)
    ]
    return SortedPage(query.page.order.descending, entries, cut.rest, cut.total)


def _describe(services: AdminServices, delivery: DeliverySnapshot, now: float) -> HeldDelivery:
    handle = delivery.newest
    return HeldDelivery(
        **services.placement,
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

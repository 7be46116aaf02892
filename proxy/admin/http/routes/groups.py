"""Producer and consumer groups."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import Cursor, GroupName, Limit, Replica, TopicFilter
from proxy.core.client_registry import Role
from proxy.operations import consumer_progress, dead_letters, groups, paging, worker_extras
from proxy.operations.consumer_progress import Lag, Ownership, Reset, ResetQueue, ResetResult
from proxy.operations.dead_letters import DeadLetter, Resend, Resent
from proxy.operations.groups import ConsumerGroup, ConsumerGroupSummary, GroupSummary, ProducerGroup
from proxy.operations.paging import DEFAULT_LIMIT, Order
from proxy.operations.values import Many, Page

router = APIRouter(prefix="/v1", tags=["groups"])

_BY_NAME = Order("name", False)


@router.get("/producer-groups", summary="Producer groups with members here")
async def list_producer_groups(
    replica: Replica, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[GroupSummary]:
    names = replica.registry.groups(Role.PRODUCER)
    cut = await paging.cut(names, lambda _: True, lambda name: ("", name), _BY_NAME, limit, cursor)
    items = await paging.described(cut.items, partial(groups.producer_summary, replica))
    worker_extras.tell("members", lambda: [groups.known(replica, Role.PRODUCER, name) for name in cut.items])
    return Page(items=items, total=cut.total, next=cut.next)


@router.get("/producer-groups/{group}", summary="One producer group")
async def get_producer_group(replica: Replica, group: GroupName) -> ProducerGroup:
    return groups.producers(replica, group)


@router.get("/consumer-groups", summary="Consumer groups with members here, or behind Java proxies")
async def list_consumer_groups(
    replica: Replica,
    topic: TopicFilter = None,
    skewed: Annotated[bool | None, Query(description="only those whose members disagree, or do not")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[ConsumerGroupSummary]:
    names: list[str] = replica.registry.groups(Role.CONSUMER)
    known: dict[str, ConsumerGroupSummary] = {}

    def wanted(name: str) -> bool:
        if topic is None and skewed is None:
            return True
        summary = known[name] = groups.consumer_summary(replica, name)
        return (topic is None or topic in summary.topics) and (skewed is None or skewed == summary.skewed)

    cut = await paging.cut(names, wanted, lambda name: ("", name), _BY_NAME, limit, cursor)
    items = await paging.described(cut.items, lambda name: known.get(name) or groups.consumer_summary(replica, name))
    worker_extras.tell("members", lambda: [groups.known(replica, Role.CONSUMER, name) for name in cut.items])
    return Page(items=items, total=cut.total, next=cut.next)


@router.get("/consumer-groups/{group}", summary="One consumer group: members, subscriptions, skew")
async def get_consumer_group(replica: Replica, group: GroupName) -> ConsumerGroup:
    worker_extras.tell("members", lambda: [groups.known(replica, Role.CONSUMER, group)])
    return await groups.consumers(replica, group)


@router.get("/consumer-groups/{group}/lag", summary="How far a group is, by queue")
async def get_lag(replica: Replica, group: GroupName, topic: TopicFilter = None) -> Lag:
    return await consumer_progress.lag(replica, group, topic)


@router.get("/consumer-groups/{group}/queues", summary="Which member has which queue, as the members say")
async def get_queue_owners(replica: Replica, group: GroupName) -> Ownership:
    return await consumer_progress.owners(replica, group)


@router.post(
    "/consumer-groups/{group}/reset-offset",
    tags=["operations"],
    summary="Move a group: to a time, to the first or last message, or to an offset of one queue",
)
async def reset_offset(replica: Replica, group: GroupName, wanted: Reset) -> ResetResult:
    if isinstance(wanted, ResetQueue) and not replica.core.backend.has_broker(wanted.broker):
        raise Refused(404, f"there is no broker {wanted.broker}")
    return await consumer_progress.reset(replica, group, wanted)


@router.get("/consumer-groups/{group}/dead-letters", summary="The newest messages of a group's dead letter queue")
async def list_dead_letters(
    replica: Replica, group: GroupName, limit: Annotated[int, Query(ge=1, le=100)] = 32
) -> Many[DeadLetter]:
    return Many(items=await dead_letters.newest(replica, group, limit))


@router.post(
    "/consumer-groups/{group}/dead-letters/resend",
    tags=["operations"],
    summary="Give dead letters to their group once more",
)
async def resend_dead_letters(replica: Replica, group: GroupName, wanted: Resend) -> Many[Resent]:
    return Many(items=await dead_letters.resend(replica, group, wanted))

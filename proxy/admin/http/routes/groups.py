"""Routes of producer and consumer groups."""

from typing import Annotated

from fastapi import APIRouter, Query

from proxy.admin.http.routes.common import Cursor, GroupName, Limit, Operations, Route, TopicFilter
from proxy.operations import definitions
from proxy.operations.definitions import GroupChange, GroupDefinition, GroupOrder, GroupUpdate
from proxy.operations.groups import consumer_progress, group_list, groups
from proxy.operations.groups.consumer_progress import (
    Lag,
    LagQuery,
    Ownership,
    OwnershipQuery,
    Reset,
    ResetOrder,
    ResetResult,
)
from proxy.operations.groups.group_list import GroupQuery, GroupSort
from proxy.operations.groups.group_survey import GroupState
from proxy.operations.groups.groups import (
    ConsumerGroup,
    ConsumerGroupPage,
    GroupSummary,
    ProducerGroup,
)
from proxy.operations.messages import dead_letter_purge, dead_letters
from proxy.operations.messages.dead_letter_purge import Purged
from proxy.operations.messages.dead_letters import DeadLetterPage, DeadLetterQuery, Resend, ResendOrder, Resent
from proxy.operations.paging import DEFAULT_LIMIT, PageRequest
from proxy.operations.values import ItemList, Page

# The worker that surveys the groups at an interval, and the age in seconds up to which a survey answers a request.
_SURVEYOR = 0
_MAX_SURVEY_AGE = 15.0
_MAX_NAMES = 100

router = APIRouter(prefix="/v1", tags=["groups"], route_class=Route)


@router.get("/producer-groups", summary="Producer groups with members here")
async def list_producer_groups(
    operations: Operations, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[GroupSummary]:
    page = PageRequest.parse("name", limit, cursor)
    merged = await operations.gather(groups.list_producer_groups, page)
    return merged.mark(merged.value.page(page, lambda group: group.producer_summary))


@router.get("/producer-groups/{group}", summary="One producer group")
async def get_producer_group(operations: Operations, group: GroupName) -> ProducerGroup:
    merged = await operations.gather(groups.get_producer_group, group)
    return merged.mark(merged.value.single)


@router.get("/consumer-groups", summary="All consumer groups, with and without members")
async def list_consumer_groups(
    operations: Operations,
    state: Annotated[GroupState | None, Query(description="only groups in this state")] = None,
    prefix: Annotated[str | None, Query(max_length=255, description="only names that begin with this")] = None,
    topic: TopicFilter = None,
    skewed: Annotated[bool | None, Query(description="only groups whose subscriptions differ, or do not")] = None,
    attention: Annotated[
        bool | None,
        Query(
            description="only groups that are stuck, lagging or failing, have dead letters, or have messages and no "
            "members; or only the others"
        ),
    ] = None,
    name: Annotated[
        list[str] | None, Query(max_length=_MAX_NAMES, description="only these groups; may be repeated")
    ] = None,
    sort: Annotated[
        GroupSort, Query(description="with - the greatest first; urgency: stuck, lagging, others that need attention")
    ] = "name",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> ConsumerGroupPage:
    page = PageRequest.parse(sort, limit, cursor)
    query = GroupQuery(state, prefix, topic, skewed, attention, None if name is None else frozenset(name))
    interval = operations.services.settings.survey_interval
    surveyed = await operations.run(groups.survey_consumer_groups, max(2 * interval, _MAX_SURVEY_AGE), _SURVEYOR)
    # The members at all workers decide whether a group matches, so every group is needed.
    merged = await operations.gather(groups.list_consumer_groups, PageRequest.parse("name", limit).whole_list)
    return merged.mark(await group_list.page_of(merged.value, surveyed, query, page))


@router.get("/consumer-groups/{group}", summary="One consumer group: members, subscriptions, skew")
async def get_consumer_group(operations: Operations, group: GroupName) -> ConsumerGroup:
    merged = await operations.gather(groups.get_consumer_group, group)
    return merged.mark(merged.value.single.group(await operations.run(groups.get_status, group, _SURVEYOR)))


@router.post(
    "/consumer-groups", tags=["operations"], summary="Create a consumer group at every broker; 409 if each has it"
)
async def create_consumer_group(operations: Operations, order: GroupOrder) -> GroupDefinition:
    return await operations.run(definitions.create_group, order)


@router.patch("/consumer-groups/{group}", tags=["operations"], summary="Change a group: order, retries, enabled")
async def update_consumer_group(operations: Operations, group: GroupName, update: GroupUpdate) -> GroupDefinition:
    return await operations.run(definitions.update_group, GroupChange(group, update))


@router.delete(
    "/consumer-groups/{group}",
    tags=["operations"],
    status_code=204,
    summary="Delete a group without members, with its offsets",
)
async def delete_consumer_group(operations: Operations, group: GroupName) -> None:
    await operations.run(definitions.delete_group, group)


@router.get("/consumer-groups/{group}/definition", summary="A group's configuration at the brokers")
async def get_group_definition(operations: Operations, group: GroupName) -> GroupDefinition:
    return await operations.run(definitions.get_group, group)


@router.get("/consumer-groups/{group}/lag", summary="A group's progress by queue")
async def get_lag(operations: Operations, group: GroupName, topic: TopicFilter = None) -> Lag:
    return await operations.run(consumer_progress.get_lag, LagQuery(group, topic))


@router.get("/consumer-groups/{group}/queues", summary="The owners of a group's queues, as its members report them")
async def get_queue_owners(operations: Operations, group: GroupName) -> Ownership:
    workers = operations.services.workers
    first = workers.number if operations.worker is None else operations.worker
    merged = await operations.gather(
        consumer_progress.get_owners, lambda worker: OwnershipQuery(group, elsewhere=worker == first)
    )
    owners = merged.value
    return merged.mark(Ownership(group=group, queues=owners.queues, unanswered=owners.unanswered))


@router.post(
    "/consumer-groups/{group}/reset-offset",
    tags=["operations"],
    summary="Move a group: to a time, to the first or last message, or to an offset of one queue",
)
async def reset_offset(operations: Operations, group: GroupName, reset: Reset) -> ResetResult:
    return await operations.run(consumer_progress.reset_offset, ResetOrder(group, reset))


@router.get("/consumer-groups/{group}/dead-letters", summary="A group's dead letters, the newest first")
async def list_dead_letters(
    operations: Operations,
    group: GroupName,
    limit: Annotated[int, Query(ge=1, le=100, description="items of a page")] = 32,
    cursor: Cursor = None,
) -> DeadLetterPage:
    return await operations.run(dead_letters.list_dead_letters, DeadLetterQuery(group, limit, cursor))


@router.post(
    "/consumer-groups/{group}/dead-letters/resend",
    tags=["operations"],
    summary="Send dead letters to their group again",
)
async def resend_dead_letters(operations: Operations, group: GroupName, resend: Resend) -> ItemList[Resent]:
    protocols = (await operations.gather(dead_letters.find_protocols, group)).value
    return ItemList(items=await operations.run(dead_letters.resend, ResendOrder(group, resend, protocols)))


@router.delete(
    "/consumer-groups/{group}/dead-letters", tags=["operations"], summary="Delete all dead letters of a group"
)
async def purge_dead_letters(operations: Operations, group: GroupName) -> Purged:
    return await operations.run(dead_letter_purge.purge, group)

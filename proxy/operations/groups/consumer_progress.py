"""Consumer progress: lag, owners of queues, and offset resets."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag

from proxy.operations import broker_requests
from proxy.operations.broker_settings import resets_by_itself
from proxy.operations.client_tools import ClientQuestion, ClientRefused, running_info
from proxy.operations.failures import not_found
from proxy.operations.groups import reset_preview
from proxy.operations.groups.groups import members_of
from proxy.operations.groups.known_groups import check_group
from proxy.operations.groups.offset_table import QueueKey, QueueOffsets, offset_table, progress
from proxy.operations.operation import BULK_TIMEOUT, REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import merge_by_key
from proxy.operations.values import (
    Answer,
    Mergeable,
    Name,
    Reply,
    RequestBody,
    Rules,
    Timestamp,
    at_milliseconds,
    union,
)
from remoting.codes import RequestCode
from remoting.errors import RemotingError

# Clients that are asked at the same time, and for one reply.
_MAX_CONCURRENT = 16
_MAX_CLIENTS = 200
# The timestamp of a reset to the end of a queue.
_END = -1


class QueueProgress(Answer):
    """The progress of a group in one queue."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    end: int = Field(description="offset after the queue's last message")
    consumed: int = Field(description="offset after the last message that the group has consumed")
    lag: int = Field(description="messages in between")
    consumed_until: Timestamp | None = Field(description="store time of the last message that the group has consumed")


class Lag(Answer):
    """The progress of a group."""

    group: str = Field(examples=["orders-billing"])
    lag: int = Field(description="sum of all queues, those of its retry topics too")
    queues: list[QueueProgress]
    unanswered: list[str] = Field(description="brokers that did not answer, with the reason")


class QueueOwner(Mergeable):
    """The consumers of a queue. Several, or none, are normal while the group rebalances, and an error afterwards."""

    MERGE_KEY = ("topic", "broker", "queue")
    MERGE_RULES: ClassVar[Rules] = {"client_ids": union}

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    client_ids: list[str]


class Ownership(Reply):
    """The queues of a group as its members report them. Members that pop share all queues, and report none."""

    group: str = Field(examples=["orders-billing"])
    queues: list[QueueOwner]
    unanswered: list[str] = Field(description="client ids of members that did not answer")


class _ResetOptions(RequestBody):
    """Options of every reset."""

    dry_run: bool = Field(False, description="only report the offsets that the reset would set")


class ResetToTime(_ResetOptions):
    """All queues of a topic: to the first message stored at or after this time."""

    topic: Name = Field(examples=["orders"])
    time: datetime = Field(examples=["2026-11-21T08:00:00Z"])


class ResetToEnd(_ResetOptions):
    """All queues of a topic: to the first message, or after the last."""

    topic: Name = Field(examples=["orders"])
    to: Literal["earliest", "latest"]


class ResetQueue(_ResetOptions):
    """One queue: to an offset."""

    topic: Name = Field(examples=["orders"])
    broker: Name = Field(examples=["broker-a"])
    queue: int = Field(ge=0, le=65_535)
    offset: int = Field(ge=0, lt=2**53)


def _kind_of_reset(body: object) -> str:
    """Return the tag of a request body by its fields, so that faults are those of one kind."""
    fields = body if isinstance(body, dict) else getattr(body, "__dict__", {})
    return next((name for name in ("time", "to") if name in fields), "offset")


Reset = Annotated[
    Annotated[ResetToTime, Tag("time")] | Annotated[ResetToEnd, Tag("to")] | Annotated[ResetQueue, Tag("offset")],
    Discriminator(_kind_of_reset),
]


class QueueOffset(Answer):
    """The offset of a group in one queue after a reset, and before."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    former: int | None = Field(description="the offset before; null: the group had none")
    offset: int


class ResetResult(Answer):
    """The offsets of a group after a reset."""

    group: str = Field(examples=["orders-billing"])
    dry_run: bool
    queues: list[QueueOffset]


@dataclass(frozen=True, slots=True)
class LagQuery:
    """A group, and one of its topics; None: all of them."""

    group: str
    topic: str | None


@dataclass(frozen=True, slots=True)
class OwnershipQuery:
    """A group. elsewhere: whether to ask members that are connected to other replicas too."""

    group: str
    elsewhere: bool


@dataclass(frozen=True, slots=True)
class OwnershipSnapshot:
    """The owners of a group's queues, and the members that have answered this worker, or have not."""

    worker: int
    queues: list[QueueOwner]
    answered: list[str]
    unanswered: list[str]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Merge owners by queue. A member that one worker cannot reach may have answered another."""
        queues = merge_by_key([(snapshot.worker, queue) for snapshot in snapshots for queue in snapshot.queues])
        answered = union(snapshot.answered for snapshot in snapshots)
        unanswered = {client_id for snapshot in snapshots for client_id in snapshot.unanswered}
        queues.sort(key=lambda queue: (queue.topic, queue.broker, queue.queue))
        return cls(snapshots[0].worker, queues, answered, sorted(unanswered.difference(answered)))


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """A group, and where to move it."""

    group: str
    reset: Reset


@operation("consumers.lag", timeout=REMOTE_TIMEOUT, merged=False)
async def get_lag(services: AdminServices, query: LagQuery) -> Lag:
    """Return a group's progress, in one or all topics. Raises OperationFailed or TopicNotExist for unknown names."""
    fields = (
        {"consumerGroup": query.group}
        if query.topic is None
        else {
            "consumerGroup": query.group,
            "topic": query.topic,
        }
    )
    core = services.replica.core
    brokers = sorted(await core.backend.brokers())
    requests = (_progress_at(services, broker, dict(fields)) for broker in brokers)
    queues: list[QueueProgress] = []
    unanswered = []
    for reply in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(reply, RemotingError):
            unanswered.append(str(reply))
        elif isinstance(reply, BaseException):
            raise reply
        else:
            queues += map(_queue_progress, reply)
    queues.sort(key=lambda row: (row.topic, row.broker, row.queue))
    if not queues and not unanswered:
        await check_group(services.replica, query.group)
    if not queues and query.topic is not None:
        # Brokers answer for any name. Raises TopicNotExist.
        await core.backend.route(query.topic)
    return Lag(group=query.group, lag=sum(row.lag for row in queues), queues=queues, unanswered=unanswered)


async def _progress_at(services: AdminServices, broker: str, fields: dict[str, str]) -> list[QueueOffsets]:
    reply = await broker_requests.ask(services.replica.core, broker, RequestCode.GET_CONSUME_STATS, fields)
    return progress(reply.body)


def _queue_progress(offsets: QueueOffsets) -> QueueProgress:
    return QueueProgress(
        **offsets.key._asdict(),
        end=offsets.end,
        consumed=offsets.consumed,
        lag=offsets.lag,
        consumed_until=at_milliseconds(offsets.consumed_until),
    )


@operation("consumers.owners", timeout=BULK_TIMEOUT)
async def get_owners(services: AdminServices, query: OwnershipQuery) -> OwnershipSnapshot:
    """Return the queues that the members of a group report. Raises OperationFailed."""
    members = await members_of(services, query.group)
    if not query.elsewhere:
        # Other workers ask their own members, and one of them those of other replicas.
        members = [member for member in members if member.protocol is not None]
    members = members[:_MAX_CLIENTS]
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    replies = await asyncio.gather(*(_queues_of(services, query.group, member.client_id, limit) for member in members))
    owners: dict[tuple[str, str, int], list[str]] = {}
    unanswered = []
    for member, queues in zip(members, replies, strict=True):
        if queues is None:
            unanswered.append(member.client_id)
        for queue in queues or ():
            owners.setdefault(queue, []).append(member.client_id)
    rows = [
        QueueOwner(topic=topic, broker=broker, queue=queue, client_ids=client_ids)
        for (topic, broker, queue), client_ids in sorted(owners.items())
    ]
    answered = sorted({member.client_id for member in members}.difference(unanswered))
    return OwnershipSnapshot(services.workers.number, rows, answered, unanswered)


async def _queues_of(
    services: AdminServices, group: str, client_id: str, limit: asyncio.Semaphore
) -> list[tuple[str, str, int]] | None:
    try:
        async with limit:
            info = await running_info(services, ClientQuestion(group, client_id))
    except (ClientRefused, RemotingError, TimeoutError):
        return None
    return [(queue.topic, queue.broker, queue.queue) for queue in info.queues]


@operation("consumers.reset", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def reset_offset(services: AdminServices, order: ResetOrder) -> ResetResult:
    """Move a group. A dry run is refused where the reset would be.

    Raises RemotingError and OperationFailed; brokers that have moved the group by then do not move it back.
    """
    core, reset = services.replica.core, order.reset
    fields = {"topic": reset.topic, "group": order.group, "timestamp": str(_END), "isForce": "true"}
    route = await core.backend.route(reset.topic)
    brokers = route.brokers
    if isinstance(reset, ResetQueue):
        if not core.backend.has_broker(reset.broker):
            raise not_found(f"there is no broker {reset.broker}")
        await _check_reset(services, reset.broker)
        fields.update(queueId=str(reset.queue), offset=str(reset.offset))
        brokers = (reset.broker,)
    else:
        fields["timestamp"] = str(_timestamp(reset))
    if reset.dry_run:
        await check_group(services.replica, order.group)
    former = await reset_preview.current_offsets(services, order.group, reset.topic, brokers)
    offsets: Mapping[QueueKey, int]
    if not reset.dry_run:
        offsets = await _reset_at(services, brokers, fields)
    elif isinstance(reset, ResetQueue):
        key = QueueKey(reset.topic, reset.broker, reset.queue)
        await reset_preview.check_target(services, route, key, reset.offset)
        offsets = {key: reset.offset}
    else:
        offsets = await reset_preview.target_offsets(services, route, reset.topic, _timestamp(reset))
    queues = [
        QueueOffset(**key._asdict(), former=former.get(key), offset=offset) for key, offset in sorted(offsets.items())
    ]
    return ResetResult(group=order.group, dry_run=reset.dry_run, queues=queues)


async def _reset_at(services: AdminServices, brokers: Sequence[str], fields: dict[str, str]) -> dict[QueueKey, int]:
    core, code = services.replica.core, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    replies = await asyncio.gather(*(broker_requests.ask(core, broker, code, dict(fields)) for broker in brokers))
    return {key: int(offset) for reply in replies for key, offset in offset_table(reply.body)}


async def _check_reset(services: AdminServices, broker: str) -> None:
    """Raise RemotingError if the broker leaves resets to clients: it would ignore the queue, and move the group to the
    end of all queues."""
    if not await resets_by_itself(services.replica, broker):
        raise RemotingError(
            f"the broker {broker} leaves resets to its clients (useServerSideResetOffset=false), which cannot reset a "
            "single queue: reset the whole topic"
        )


def _timestamp(reset: ResetToTime | ResetToEnd) -> int:
    """Return milliseconds since 1970. A time without a zone is UTC."""
    if isinstance(reset, ResetToEnd):
        return 0 if reset.to == "earliest" else _END
    time = reset.time.replace(tzinfo=UTC) if reset.time.tzinfo is None else reset.time
    return max(int(time.timestamp() * 1000), 0)

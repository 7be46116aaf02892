"""How far consumer groups are, who has which queue, and moving a group elsewhere."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from proxy.operations import operator_channel, worker_extras
from proxy.operations.broker_settings import resets_by_itself
from proxy.operations.client_tools import ClientRefused, running_info
from proxy.operations.groups import consumers
from proxy.operations.replica import Replica
from proxy.operations.values import Answer, Name, Question, at_milliseconds
from remoting import fastjson
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.fastjson import ObjectKeys

# Clients that are asked at the same time, and at most for one answer.
_AT_ONCE = 16
_MAX_ASKED = 200
_TO_THE_END = -1


class QueueProgress(Answer):
    """How far a group is in one queue."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    end: int = Field(description="offset behind the queue's last message")
    consumed: int = Field(description="offset behind the last message that is done with")
    lag: int = Field(description="messages in between")
    consumed_until: datetime | None = Field(description="when the last message that is done with was stored")


class Lag(Answer):
    """How far a group is."""

    group: str = Field(examples=["orders-billing"])
    lag: int = Field(description="of all queues together")
    queues: list[QueueProgress]
    unanswered: list[str] = Field(description="brokers that could not tell, with the reason")


class QueueOwner(Answer):
    """Who consumes a queue; several clients, or none while the group settles, mean trouble if that lasts."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    client_ids: list[str]


class Ownership(Answer):
    """A group's queues as its members tell. Members that pop share all queues, and have none of their own."""

    group: str = Field(examples=["orders-billing"])
    queues: list[QueueOwner]
    unanswered: list[str] = Field(description="client ids of members that did not tell")


class ResetToTime(Question):
    """All queues of a topic: to the first message stored at this time, or after it."""

    topic: Name = Field(examples=["orders"])
    time: datetime = Field(examples=["2026-11-21T08:00:00Z"])


class ResetToEnd(Question):
    """All queues of a topic: to the first message kept, or behind the last."""

    topic: Name = Field(examples=["orders"])
    to: Literal["earliest", "latest"]


class ResetQueue(Question):
    """One queue: to an offset."""

    topic: Name = Field(examples=["orders"])
    broker: Name = Field(examples=["broker-a"])
    queue: int = Field(ge=0, le=65_535)
    offset: int = Field(ge=0, lt=2**53)


Reset = ResetToTime | ResetToEnd | ResetQueue


class QueueOffset(Answer):
    """Where a group goes on in one queue."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int


class ResetResult(Answer):
    """Where a group goes on from now."""

    group: str = Field(examples=["orders-billing"])
    queues: list[QueueOffset]


async def lag(replica: Replica, group: str, topic: str | None) -> Lag:
    """How far a group is, in one topic or in all of its topics."""
    fields = {"consumerGroup": group} if topic is None else {"consumerGroup": group, "topic": topic}
    brokers = sorted(await replica.core.backend.brokers())
    asked = (
        operator_channel.ask(replica.core, broker, RequestCode.GET_CONSUME_STATS, dict(fields)) for broker in brokers
    )
    replies = await asyncio.gather(*asked, return_exceptions=True)
    queues, unanswered = [], []
    for reply in replies:
        if isinstance(reply, RemotingError):
            unanswered.append(str(reply))
        elif isinstance(reply, BaseException):
            raise reply
        else:
            queues += [_progress(queue, row) for queue, row in _table(reply.body)]
    queues.sort(key=lambda row: (row.topic, row.broker, row.queue))
    return Lag(group=group, lag=sum(row.lag for row in queues), queues=queues, unanswered=unanswered)


def _progress(queue: dict[str, Any], row: dict[str, Any]) -> QueueProgress:
    end, consumed = int(row.get("brokerOffset", 0)), int(row.get("consumerOffset", 0))
    return QueueProgress(
        **_queue(queue),
        end=end,
        consumed=consumed,
        lag=max(end - consumed, 0),
        consumed_until=at_milliseconds(int(row.get("lastTimestamp", 0))),
    )


def _queue(queue: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": str(queue.get("topic", "")),
        "broker": str(queue.get("brokerName", "")),
        "queue": int(queue.get("queueId", -1)),
    }


def _table(body: bytes) -> list[tuple[dict[str, Any], Any]]:
    """The `offsetTable` of an answer, whose keys are queues."""
    data = fastjson.loads(body) if body else {}
    table = data.get("offsetTable") if isinstance(data, dict) else None
    return (
        [(key, value) for key, value in table.pairs if isinstance(key, dict)] if isinstance(table, ObjectKeys) else []
    )


async def owners(replica: Replica, group: str) -> Ownership:
    """Which queues the members of a group say that they have. Raises NoSuchGroup."""
    members = (await consumers(replica, group)).members
    if worker_extras.wanted("answered") and not worker_extras.wanted("elsewhere"):
        # The others are another worker's, which asks them itself, or are asked by the one that asks us.
        members = [member for member in members if member.protocol is not None]
    members = members[:_MAX_ASKED]
    turn = asyncio.Semaphore(_AT_ONCE)
    asked = await asyncio.gather(*(_queues_of(replica, group, member.client_id, turn) for member in members))
    found: dict[tuple[str, str, int], list[str]] = {}
    unanswered = []
    for member, queues in zip(members, asked, strict=True):
        if queues is None:
            unanswered.append(member.client_id)
        for queue in queues or ():
            found.setdefault(queue, []).append(member.client_id)
    worker_extras.tell("answered", lambda: sorted({member.client_id for member in members} - set(unanswered)))
    rows = [
        QueueOwner(topic=topic, broker=broker, queue=queue, client_ids=client_ids)
        for (topic, broker, queue), client_ids in sorted(found.items())
    ]
    return Ownership(group=group, queues=rows, unanswered=unanswered)


async def _queues_of(
    replica: Replica, group: str, client_id: str, turn: asyncio.Semaphore
) -> list[tuple[str, str, int]] | None:
    try:
        async with turn:
            info = await running_info(replica, group, client_id, stack=False)
    except (ClientRefused, RemotingError, TimeoutError):
        return None
    return [(queue.topic, queue.broker, queue.queue) for queue in info.queues]


async def reset(replica: Replica, group: str, wanted: Reset) -> ResetResult:
    """Move a group. Raises RemotingError; what brokers have done by then stays done."""
    fields = {"topic": wanted.topic, "group": group, "timestamp": str(_TO_THE_END), "isForce": "true"}
    if isinstance(wanted, ResetQueue):
        await _check_reset(replica, wanted.broker)
        fields.update(queueId=str(wanted.queue), offset=str(wanted.offset))
        brokers: tuple[str, ...] = (wanted.broker,)
    else:
        fields["timestamp"] = str(_timestamp(wanted))
        brokers = (await replica.core.backend.route(wanted.topic)).brokers
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    replies = await asyncio.gather(
        *(operator_channel.ask(replica.core, broker, code, dict(fields)) for broker in brokers)
    )
    queues = [
        QueueOffset(**_queue(queue), offset=int(offset)) for reply in replies for queue, offset in _table(reply.body)
    ]
    return ResetResult(group=group, queues=sorted(queues, key=lambda row: (row.topic, row.broker, row.queue)))


async def _check_reset(replica: Replica, broker: str) -> None:
    """Brokers that leave resets to clients do not look at the queue: they would send the group to the end of all."""
    if not await resets_by_itself(replica, broker):
        raise RemotingError(
            f"the broker {broker} leaves resets to its clients (useServerSideResetOffset=false), which know no single "
            "queue: reset the whole topic"
        )


def _timestamp(wanted: ResetToTime | ResetToEnd) -> int:
    """Milliseconds since 1970. A time without a zone is UTC."""
    if isinstance(wanted, ResetToEnd):
        return 0 if wanted.to == "earliest" else _TO_THE_END
    return max(int(_utc(wanted.time).timestamp() * 1000), 0)


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time

"""Routes of stored messages: lists, one message, its way through the consumer groups, sending it again."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BeforeValidator

from proxy.admin.access import may_read_contents
from proxy.admin.http.routes.common import Cursor, Operations, Route, TopicFilter, TopicName
from proxy.operations.messages import browsing, dead_letters, message_journey, traces
from proxy.operations.messages.browsing import (
    MessageOrder,
    MessagePage,
    MessageQuery,
    MessageRequest,
    MessageResend,
    MessageResent,
    StoredMessageDetail,
)
from proxy.operations.messages.message_bodies import BodyFormat
from proxy.operations.messages.message_journey import Journey, JourneyQuery
from proxy.operations.messages.resending import Protocols
from proxy.operations.messages.traces import MessageTraceReport, TraceQuery
from remoting.message_query import EVER

router = APIRouter(prefix="/v1/topics/{topic}/messages", tags=["messages"], route_class=Route)

trace_router = APIRouter(prefix="/v1/message-traces", tags=["messages"], route_class=Route)

_PATH = "/{message_id}"
MessageId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=255,
        description="the unique id, or the offset message id",
        examples=["7F000001000018B4AAC2000000000001"],
    ),
]
_RESEND = MessageResend()


def _iso(text: object) -> object:
    """Refuse numbers, which pydantic reads as seconds. Raises ValueError."""
    if isinstance(text, str) and "-" not in text[1:]:
        raise ValueError("needs an ISO 8601 time, such as 2026-11-21T08:00:00Z")
    return text


Time = Annotated[datetime, BeforeValidator(_iso)]


def _may_read_contents(request: Request, operations: Operations) -> bool:
    """Return whether the caller may read bodies, keys and properties (setting admin.contents)."""
    return may_read_contents(operations.services.settings, getattr(request.state, "caller", None))


Contents = Annotated[bool, Depends(_may_read_contents)]


@router.get("", summary="Messages of a topic by queue, time, offset, key, tag or SQL")
async def list_messages(
    operations: Operations,
    topic: TopicName,
    contents: Contents,
    broker: Annotated[str | None, Query(max_length=255)] = None,
    queue: Annotated[int | None, Query(ge=0, le=65_535)] = None,
    offset: Annotated[int | None, Query(ge=0, lt=2**53, description="first offset of the queue")] = None,
    begin: Annotated[Time | None, Query(alias="from", description="stored at this time or later")] = None,
    end: Annotated[Time | None, Query(alias="to", description="stored at this time or before")] = None,
    key: Annotated[str | None, Query(min_length=1, max_length=512, description="with this key, newest first")] = None,
    tag: Annotated[str | None, Query(min_length=1, max_length=512, description="a tag, or several: `a || b`")] = None,
    sql: Annotated[str | None, Query(min_length=1, max_length=4096, description="SQL92 condition")] = None,
    order: Annotated[
        Literal["newest", "oldest"] | None, Query(description="default: newest first, with an offset oldest first")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="items of a page")] = 32,
    cursor: Cursor = None,
) -> MessagePage:
    query = MessageQuery(
        topic,
        contents,
        limit,
        cursor,
        order,
        broker,
        queue,
        offset,
        _milliseconds(begin, 0),
        _milliseconds(end, EVER),
        key,
        tag,
        sql,
    )
    return await operations.run(browsing.list_messages, query)


def _milliseconds(time: datetime | None, default: int) -> int:
    """Return milliseconds since 1970. A time without a zone is UTC."""
    if time is None:
        return default
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return max(int(time.timestamp() * 1000), 0)


@router.get(_PATH, summary="One message with its properties and body")
async def get_message(
    operations: Operations,
    topic: TopicName,
    message_id: MessageId,
    contents: Contents,
    body: Annotated[BodyFormat, Query(description="form of the body; auto: JSON, text or hex")] = "auto",
    message_type: Annotated[
        str | None, Query(max_length=512, description="full name of the protobuf message type", examples=["shop.Order"])
    ] = None,
) -> StoredMessageDetail:
    request = MessageRequest(topic, message_id, body if contents else None, message_type)
    return await operations.run(browsing.get_message, request)


@router.get(_PATH + "/groups", summary="Where a message went: consumed, waiting, retried or dead, by consumer group")
async def get_journey(operations: Operations, topic: TopicName, message_id: MessageId) -> Journey:
    return await operations.run(message_journey.get_journey, JourneyQuery(topic, message_id))


@router.post(
    _PATH + "/resend", tags=["operations"], summary="Send a copy of a message to its topic, or to one consumer group"
)
async def resend_message(
    operations: Operations, topic: TopicName, message_id: MessageId, resend: MessageResend = _RESEND
) -> MessageResent:
    protocols = Protocols([])
    if resend.group is not None:
        # The target of `auto` depends on the group's members at all replicas.
        protocols = (await operations.gather(dead_letters.find_protocols, resend.group)).value
    return await operations.run(browsing.resend_message, MessageOrder(topic, message_id, resend, protocols))


@trace_router.get(_PATH, summary="Who sent and consumed a message, from trace records; topic: theirs")
async def get_trace(
    operations: Operations, message_id: MessageId, trace_topic: TopicFilter = None
) -> MessageTraceReport:
    return await operations.run(traces.get_trace, TraceQuery(message_id, trace_topic))

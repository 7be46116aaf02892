"""Stored messages for operators: lists by queue, time, offset, key, tag or SQL; one message; sending it again."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from proxy.embedded.broker.filters import SqlFilter
from proxy.operations.failures import Failure, FailureKind, OperationFailed, not_found
from proxy.operations.groups.known_groups import check_group
from proxy.operations.messages import key_search, message_bodies, message_lookup, message_scan
from proxy.operations.messages.key_search import SearchExhausted
from proxy.operations.messages.message_bodies import Body, BodyFormat
from proxy.operations.messages.message_lookup import Found
from proxy.operations.messages.message_scan import PageRange, QueueName, place_of
from proxy.operations.messages.resending import Protocols, Target, origin, send_again, target_topic
from proxy.operations.operation import BULK_TIMEOUT, REMOTE_TIMEOUT, operation
from proxy.operations.paging import PageRequest, Place, cursor_of
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, Name, RequestBody, Timestamp, at_milliseconds
from remoting import properties, tag_expression
from remoting.errors import BodyError
from remoting.message_query import EVER
from remoting.names import DLQ_PREFIX


class MessageSummary(Answer):
    """A stored message. Message group, keys and preview are null for callers who may not read contents."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    offset_message_id: str = Field(
        description="its place at the broker, which distinguishes copies of a message",
        examples=["7F00000100002A9F0000000000000017"],
    )
    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int
    tag: str | None = Field(examples=["TagA"])
    message_group: str | None = Field(examples=["customer-17"])
    keys: list[str] | None = Field(examples=[["order-17"]])
    bytes: int = Field(description="size of the body as it is stored")
    reconsumed: int = Field(description="deliveries after the first one, before the message was stored here")
    born: Timestamp | None
    stored: Timestamp | None
    preview: str | None = Field(description="the beginning of the body", examples=['{"order": 17}'])


class MessagePage(Answer):
    """Messages in the order of their store time. A page may have fewer messages than its limit, and a next page."""

    items: list[MessageSummary]
    next: str | None = Field(description="`cursor` of the next page", examples=[None])


class StoredMessageDetail(MessageSummary):
    """A stored message with its contents. Body and properties are null for callers who may not read contents."""

    born_host: str = Field(description="address of the producer", examples=["192.0.2.7:51234"])
    origin: str | None = Field(description="topic that a dead letter was first sent to; null: it is none")
    flag: int
    sys_flag: int
    properties: dict[str, str] | None = Field(examples=[{"TAGS": "TagA"}])
    body: Body | None


class MessageResend(RequestBody):
    """Where to send a message again; it stays where it is."""

    to: Target | None = Field(
        None,
        description="topic: the message's topic, for every group; retry: the group's retry topic, which remoting push "
        "consumers read; pop_retry: the retry topic of consumers that pop; auto: one of the latter; null: auto with a "
        "group, or else topic",
    )
    group: Name | None = Field(None, description="the consumer group, unless it is for the topic", examples=["billing"])

    @property
    def target(self) -> Target:
        """The chosen target, or else the one that reaches no other group. Raises OperationFailed."""
        target: Target = self.to or ("topic" if self.group is None else "auto")
        if target != "topic" and self.group is None:
            raise invalid("body group", f"resending to {target} needs a consumer group")
        if target == "topic" and self.group is not None:
            raise invalid("body to", "resending to the topic reaches every group: leave out group, or to")
        return target


class MessageResent(Answer):
    """The result of sending a message again."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    topic: str = Field(description="the topic that it was sent to", examples=["orders"])


def invalid(place: str, detail: str) -> OperationFailed:
    """Return the error for a value that is not valid."""
    return _invalid([(place, detail)])


def _invalid(faults: list[tuple[str, str]]) -> OperationFailed:
    return OperationFailed(Failure(FailureKind.INVALID, "the request is not valid", faults))


def check_search(contents: bool, key: str | None = None, sql: str | None = None) -> None:
    """Raise OperationFailed for a search by key or SQL by a caller who may not read contents."""
    for name, searched in (("key", key), ("sql", sql)):
        # The number of results would reveal keys and properties.
        if searched is not None and not contents:
            detail = f"searching by {name} needs the permission to read contents (admin.contents)"
            raise OperationFailed(Failure(FailureKind.FORBIDDEN, detail))


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """A page of a topic's messages; None: any.

    begin, end: store times in ms since 1970. contents: whether the caller may read keys and bodies. order: None: the
    newest first, from an offset the oldest first. cursor: of the page; None: the first one.
    """

    topic: str
    contents: bool
    limit: int
    cursor: str | None = None
    order: Literal["newest", "oldest"] | None = None
    broker: str | None = None
    queue: int | None = None
    offset: int | None = None
    begin: int = 0
    end: int = EVER
    key: str | None = None
    tag: str | None = None
    sql: str | None = None

    def check(self) -> None:
        """Raise OperationFailed for a search that the caller may not do, and for values that exclude each other."""
        check_search(self.contents, self.key, self.sql)
        faults = []
        if self.tag is not None and self.sql is not None:
            faults.append(("query sql", "tag and sql exclude each other"))
        if self.order == "oldest" and self.key is not None:
            faults.append(("query order", "messages by key are listed newest first"))
        if self.order == "newest" and self.offset is not None:
            faults.append(("query order", "messages from an offset are listed oldest first"))
        if self.key is not None and self.offset is not None:
            faults.append(("query offset", "key and offset exclude each other"))
        if self.begin > self.end:
            faults.append(("query to", "the end is before the beginning"))
        if faults:
            raise _invalid(faults)

    def page(self) -> PageRequest:
        """Return the wanted page. Raises BadCursor."""
        oldest = self.order == "oldest" or (self.order is None and self.offset is not None)
        return message_scan.page_request(self.limit, self.cursor, oldest)


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A message by its unique id or its offset message id. body: None without contents."""

    topic: str
    message_id: str
    body: BodyFormat | None
    message_type: str | None = None


@dataclass(frozen=True, slots=True)
class MessageOrder:
    """A message, where to send it again, and the protocols of the group's members."""

    topic: str
    message_id: str
    resend: MessageResend
    protocols: Protocols


_Matches = Callable[[Found], bool]


def _filter(query: MessageQuery) -> _Matches:
    """Return the test of tags and SQL. Raises OperationFailed for an expression that is not valid."""
    if query.sql is not None:
        try:
            sql = SqlFilter(query.sql)
        except BodyError as error:
            raise invalid("query sql", str(error)) from None
        return lambda found: sql.matches(found.message.property_map)
    if query.tag is not None:
        names = frozenset(name.strip() for name in query.tag.split("||"))
        if names != {tag_expression.ALL}:
            return lambda found: found.message.get(properties.TAGS) in names
    return lambda _: True


@operation("messages.list", timeout=BULK_TIMEOUT, merged=False)
async def list_messages(services: AdminServices, query: MessageQuery) -> MessagePage:
    """Return a page of a topic's messages. Raises OperationFailed, RemotingError."""
    query.check()
    page = query.page()
    matches = _filter(query)

    def view(found: Found) -> MessageSummary | None:
        return _summary(found, query.contents) if matches(found) else None

    if query.key is not None:
        return await _by_key(services, query, page, view)
    queues = await _queues(services.replica, query)
    wanted = PageRange(query.begin, query.end, query.offset or 0, page.order.descending, page.after)
    found, following = await message_scan.read_page(services.replica, queues, wanted, page, view)
    return MessagePage(items=found, next=following)


async def _queues(replica: Replica, query: MessageQuery) -> list[QueueName]:
    route = await replica.core.backend.route(query.topic)
    if query.broker is not None and query.broker not in route.brokers:
        raise not_found(f"topic {query.topic} is not at broker {query.broker}")
    queues = [
        QueueName(query.topic, queues.broker, number)
        for queues in route.queues
        for number in range(max(queues.read, queues.write))
        if query.broker in (None, queues.broker) and query.queue in (None, number)
    ]
    if query.queue is not None and not queues:
        raise not_found(f"topic {query.topic} has no queue {query.queue}")
    if query.offset is not None and len(queues) != 1:
        raise invalid("query offset", "an offset needs one queue: give broker and queue")
    return queues


async def _by_key(
    services: AdminServices, query: MessageQuery, page: PageRequest, view: Callable[[Found], MessageSummary | None]
) -> MessagePage:
    assert query.key is not None
    after = page.after
    end = query.end if after is None else min(query.end, after.value)
    listed: list[MessageSummary] = []
    last: Place | None = None
    async with aclosing(key_search.by_key(services, query.topic, query.key, query.begin, end)) as searched:
        try:
            async for found in searched:
                place = place_of(found)
                summary = view(found)
                if summary is None or (after is not None and place >= after) or not _in_queue(found, query):
                    continue
                if len(listed) == page.limit:
                    assert last is not None
                    return MessagePage(items=listed, next=cursor_of(last, page.order))
                last = place
                listed.append(summary)
        except SearchExhausted as exhausted:
            return MessagePage(items=listed, next=cursor_of(exhausted.place, page.order))
    return MessagePage(items=listed, next=None)


def _in_queue(found: Found, query: MessageQuery) -> bool:
    return query.broker in (None, found.broker) and query.queue in (None, found.message.queue_id)


@operation("messages.get", timeout=REMOTE_TIMEOUT, merged=False)
async def get_message(services: AdminServices, request: MessageRequest) -> StoredMessageDetail:
    """Return one message. Raises OperationFailed, RemotingError."""
    found = await find(services, request.topic, request.message_id)
    message, body = found.message, None
    if request.body is not None:
        descriptors = services.settings.descriptors
        body = message_bodies.present(message, request.body, request.message_type, descriptors)
    contents = request.body is not None
    host, port = message.born_host
    return StoredMessageDetail(
        **_summary(found, contents).model_dump(),
        born_host=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        origin=origin(message, request.topic.removeprefix(DLQ_PREFIX))
        if request.topic.startswith(DLQ_PREFIX)
        else None,
        flag=message.flag,
        sys_flag=message.sys_flag,
        properties=dict(message.property_map) if contents else None,
        body=body,
    )


async def find(services: AdminServices, topic: str, message_id: str) -> Found:
    """Return the message with a unique id or an offset message id. Raises OperationFailed, RemotingError."""
    found = await message_lookup.by_id(services, topic, message_id)
    if found is None:
        raise not_found(f"topic {topic} has no message {message_id}")
    return found


def _summary(found: Found, contents: bool) -> MessageSummary:
    message = found.message
    pairs = message.property_map
    return MessageSummary(
        message_id=pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID) or found.offset_id,
        offset_message_id=found.offset_id,
        topic=message.topic,
        broker=found.broker,
        queue=message.queue_id,
        offset=message.queue_offset,
        tag=pairs.get(properties.TAGS),
        message_group=pairs.get(properties.SHARDING_KEY) if contents else None,
        keys=pairs.get(properties.KEYS, "").split() if contents else None,
        bytes=len(message.body),
        reconsumed=message.reconsume_times,
        born=at_milliseconds(message.born_timestamp),
        stored=at_milliseconds(message.store_timestamp),
        preview=message_bodies.preview(message) if contents else None,
    )


@operation("messages.resend", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def resend_message(services: AdminServices, order: MessageOrder) -> MessageResent:
    """Send a copy of a message to its topic, or to one group. Raises OperationFailed, RemotingError."""
    target, group = order.resend.target, order.resend.group
    if group is not None:
        await check_group(services.replica, group)
    found = await find(services, order.topic, order.message_id)
    message, topic, queue = found.message, order.topic, found.message.queue_id
    if group is not None:
        topic, queue = await target_topic(services.replica, group, found.broker, message, target, order.protocols), 0
    await send_again(services.replica, found.broker, topic, message, order.topic, queue)
    return MessageResent(message_id=order.message_id, topic=topic)

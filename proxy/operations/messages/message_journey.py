"""The way of a message: for each consumer group of its topic, whether it was consumed, retried, or is a dead letter."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from proxy.core.handlers.groups import consumer_connections
from proxy.embedded.broker.filters import new_filter
from proxy.operations import broker_requests, operator_channel
from proxy.operations.broker_requests import SHORT_TIMEOUT
from proxy.operations.groups.offset_table import QueueKey, progress
from proxy.operations.messages.browsing import find
from proxy.operations.messages.message_lookup import Found, unique_matches
from proxy.operations.operation import BULK_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer
from remoting import properties
from remoting.codes import RequestCode
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import load_object
from remoting.messages import StoredMessage
from remoting.names import SCHEDULE_TOPIC, TIMER_TOPIC, dead_letter_topic, pop_retry_topics, retry_topic

# Groups of one reply, and those that are looked up at the same time.
_MAX_GROUPS = 200
_MAX_CONCURRENT = 8

State = Literal["consumed", "waiting", "filtered", "retrying", "dead", "unknown"]


class GroupDelivery(Answer):
    """A message at one consumer group."""

    group: str = Field(examples=["orders-billing"])
    state: State = Field(
        description="consumed: the group's offset is behind it; waiting: it is not; filtered: the group's subscription "
        "does not match it; retrying: a retry waits, or is due later; dead: it is in the dead letter queue; unknown: "
        "the broker did not answer"
    )
    retries: int = Field(description="retries so far")


class Journey(Answer):
    """The way of a message."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    topic: str = Field(examples=["orders"])
    groups: list[GroupDelivery] = Field(description="the consumer groups of the topic, at most 200")


@dataclass(frozen=True, slots=True)
class JourneyQuery:
    """A message by its unique id or its offset message id."""

    topic: str
    message_id: str


@operation("messages.journey", timeout=BULK_TIMEOUT, merged=False)
async def get_journey(services: AdminServices, query: JourneyQuery) -> Journey:
    """Return where a message went. Raises OperationFailed, RemotingError."""
    found = await find(services, query.topic, query.message_id)
    reply = await broker_requests.ask(
        services.replica.core,
        found.broker,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        {"topic": query.topic},
        timeout=SHORT_TIMEOUT,
    )
    names = sorted(map(str, load_object(reply.body).get("groupList") or ()))[:_MAX_GROUPS] if reply.body else []
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def look(group: str) -> GroupDelivery:
        async with limit:
            try:
                return await _delivery(services, found, group)
            except RemotingError:
                return GroupDelivery(group=group, state="unknown", retries=0)

    groups = await asyncio.gather(*map(look, names))
    return Journey(message_id=query.message_id, topic=query.topic, groups=groups)


async def _delivery(services: AdminServices, found: Found, group: str) -> GroupDelivery:
    retried = await _copies(services, found, [retry_topic(group), *pop_retry_topics(found.message.topic, group)])
    retries = max((copy.reconsume_times for copy in retried), default=0)
    if dead := await _copies(services, found, [dead_letter_topic(group)]):
        retries = max(retries, *(copy.reconsume_times for copy in dead))
        return GroupDelivery(group=group, state="dead", retries=retries)
    delayed = await _delayed_retries(services, found, group)
    if delayed > retries:
        return GroupDelivery(group=group, state="retrying", retries=delayed)
    state: State = "consumed" if await _is_behind(services, found.broker, group, found.message) else "waiting"
    if retried:
        newest = max(retried, key=lambda copy: (copy.store_timestamp, copy.queue_offset))
        state = "consumed" if await _is_behind(services, found.broker, group, newest) else "retrying"
    elif state == "consumed" and not await _matches(services, found, group):
        state = "filtered"
    return GroupDelivery(group=group, state=state, retries=retries)


async def _delayed_retries(services: AdminServices, found: Found, group: str) -> int:
    """Return the number of the newest retry for which a message was delayed; 0: none.

    Brokers keep a delayed retry in a topic of their own, and move a copy to the group's retry topic when it is due.
    """
    copies = await _copies(services, found, [SCHEDULE_TOPIC, TIMER_TOPIC])
    retry = retry_topic(group)
    return max((copy.reconsume_times for copy in copies if copy.get(properties.REAL_TOPIC) == retry), default=0)


async def _copies(services: AdminServices, found: Found, topics: list[str]) -> list[StoredMessage]:
    """Return the copies of a message that its broker holds in other topics."""
    unique_id = found.message.get(properties.UNIQ_CLIENT_MESSAGE_ID)
    if unique_id is None:
        return []
    matches = await asyncio.gather(
        *(unique_matches(services.replica, found.broker, topic, unique_id) for topic in topics)
    )
    return [message for copies in matches for message in copies]


async def _is_behind(services: AdminServices, broker: str, group: str, message: StoredMessage) -> bool:
    """Return whether the group's offset is behind a message."""
    fields = {"consumerGroup": group, "topic": message.topic}
    reply = await broker_requests.ask(services.replica.core, broker, RequestCode.GET_CONSUME_STATS, fields)
    key = QueueKey(message.topic, broker, message.queue_id)
    return any(row.key == key and row.consumed > message.queue_offset for row in progress(reply.body))


async def _matches(services: AdminServices, found: Found, group: str) -> bool:
    """Return whether the subscription of the group's members matches a message; True where it is not known."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    try:
        reply = await operator_channel.handle(
            services.replica.core, consumer_connections, code, {"consumerGroup": group}
        )
        table = load_object(reply.body).get("subscriptionTable") if reply.code == 0 else None
    except TimeoutError:
        table = None
    data = (table or {}).get(found.message.topic) or {}
    try:
        wanted = new_filter(str(data.get("subString") or "*"), data.get("expressionType"))
    except BodyError:
        return True
    return wanted is None or wanted.matches(found.message.property_map)

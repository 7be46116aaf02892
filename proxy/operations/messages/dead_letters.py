"""Dead letters of a consumer group: list them, and send them to the group again."""

from dataclasses import dataclass

from pydantic import Field

from proxy.operations.groups.known_groups import check_group
from proxy.operations.messages import message_scan
from proxy.operations.messages.message_lookup import unique_matches
from proxy.operations.messages.message_scan import PageRange, QueueName
from proxy.operations.messages.resending import Protocols, Target, member_protocols, origin, send_again, target_topic
from proxy.operations.operation import BULK_TIMEOUT, operation
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, RequestBody, Text, Timestamp, at_milliseconds
from remoting import properties
from remoting.errors import RemotingError, TopicNotExist
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage
from remoting.names import dead_letter_topic


class DeadLetter(Answer):
    """A message in a dead letter queue, without its body and keys."""

    message_id: str = Field(examples=["7F00000100002A9F0000000000000017"])
    topic: str = Field(description="the topic that it was sent to", examples=["orders"])
    tag: str | None = Field(examples=["TagA"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int
    bytes: int
    reconsumed: int = Field(description="deliveries after the first one")
    born: Timestamp | None
    stored: Timestamp | None = Field(description="when it became a dead letter")


class DeadLetterPage(Answer):
    """Dead letters, the newest first."""

    items: list[DeadLetter]
    next: str | None = Field(description="`cursor` of the next page, with older ones", examples=[None])


class Resend(RequestBody):
    """The dead letters to send to the group again; they stay in the dead letter queue."""

    message_ids: list[Text] = Field(
        min_length=1, max_length=100, description="unique message ids", examples=[["7F000001000018B4AAC2000000000001"]]
    )
    to: Target = Field(
        "auto",
        description="retry: the group's retry topic, which remoting push consumers read; pop_retry: the retry topic of "
        "consumers that pop, as all gRPC consumers do; topic: the original topic, for every group; auto: pop_retry for "
        "messages that were retried by pop and for groups with gRPC members, retry for groups with remoting members; "
        "without members, what the broker's retry topics show, or a refusal",
    )


class Resent(Answer):
    """The result for one dead letter."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    sent: bool
    topic: str | None = Field(description="the topic that it was sent to", examples=["%RETRY%orders-billing"])
    text: str = Field(description="the reason, if it was not sent", examples=[""])


@dataclass(frozen=True, slots=True)
class DeadLetterQuery:
    """At most `limit` dead letters of a group, from a cursor on; None: the newest."""

    group: str
    limit: int
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ResendOrder:
    """A group, the dead letters to send to it again, and the protocols of its members."""

    group: str
    resend: Resend
    protocols: Protocols


@operation("dead_letters.list", timeout=BULK_TIMEOUT, merged=False)
async def list_dead_letters(services: AdminServices, query: DeadLetterQuery) -> DeadLetterPage:
    """Return a page of a group's dead letters, the newest first.

    Raises OperationFailed if there is no such group, RemotingError.
    """
    page = message_scan.page_request(query.limit, query.cursor, oldest=False)
    replica = services.replica
    topic = dead_letter_topic(query.group)
    try:
        route = await replica.core.backend.route(topic)
    except TopicNotExist:
        # Brokers create the topic with the first dead letter.
        await check_group(replica, query.group)
        return DeadLetterPage(items=[], next=None)
    queues = [QueueName(topic, queues.broker, number) for queues in route.queues for number in range(queues.readable)]
    wanted = PageRange(after=page.after)
    found, following = await message_scan.read_page(
        replica, queues, wanted, page, lambda one: _described(one.message, one.broker, query.group)
    )
    return DeadLetterPage(items=found, next=following)


def _described(message: StoredMessage, broker: str, group: str) -> DeadLetter:
    return DeadLetter(
        message_id=_id(message),
        topic=origin(message, group),
        tag=message.get(properties.TAGS),
        broker=broker,
        queue=message.queue_id,
        offset=message.queue_offset,
        bytes=len(message.body),
        reconsumed=message.reconsume_times,
        born=at_milliseconds(message.born_timestamp),
        stored=at_milliseconds(message.store_timestamp),
    )


def _id(message: StoredMessage) -> str:
    return message.get(properties.UNIQ_CLIENT_MESSAGE_ID) or str(
        OffsetMessageId(*message.store_host, message.commit_log_offset)
    )


@operation("dead_letters.resend", timeout=BULK_TIMEOUT, merged=False, writes=True)
async def resend(services: AdminServices, order: ResendOrder) -> list[Resent]:
    """Send dead letters again, one after the other, each once.

    Raises OperationFailed if there is no such group, RemotingError.
    """
    replica, group = services.replica, order.group
    try:
        brokers = (await replica.core.backend.route(dead_letter_topic(group))).brokers
    except TopicNotExist:
        # As in list_dead_letters: no message of the group has died yet.
        await check_group(replica, group)
        brokers = ()
    message_ids = dict.fromkeys(order.resend.message_ids)
    return [await _resend(replica, order, brokers, message_id) for message_id in message_ids]


@operation("groups.protocols")
async def find_protocols(services: AdminServices, group: str) -> Protocols:
    """Return the protocols of the group's members: they determine the target of `auto`."""
    return member_protocols(services.replica, group)


async def _resend(replica: Replica, order: ResendOrder, brokers: tuple[str, ...], message_id: str) -> Resent:
    group = order.group
    try:
        for broker in brokers:
            message = await _look_up(replica, group, broker, message_id)
            if message is not None:
                topic = await target_topic(replica, group, broker, message, order.resend.to, order.protocols)
                await send_again(replica, broker, topic, message, origin(message, group))
                return Resent(message_id=message_id, sent=True, topic=topic, text="")
    except RemotingError as error:
        return Resent(message_id=message_id, sent=False, topic=None, text=str(error))
    return Resent(message_id=message_id, sent=False, topic=None, text="the dead letter queue does not hold it")


async def _look_up(replica: Replica, group: str, broker: str, message_id: str) -> StoredMessage | None:
    found = await unique_matches(replica, broker, dead_letter_topic(group), message_id)
    return max(found, key=lambda message: message.store_timestamp, default=None)

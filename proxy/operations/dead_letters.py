"""Dead letters: what a group's dead letter queue holds, and giving messages to the group once more."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from proxy.core.client_registry import Role
from proxy.operations import operator_channel
from proxy.operations.broker_settings import reads_old_retry_topics
from proxy.operations.operator_channel import BrokerRefused
from proxy.operations.replica import Replica
from proxy.operations.values import Answer, Question, Text, at_milliseconds
from remoting import messages, properties, send_message
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.ids import OffsetMessageId
from remoting.messages import PullSysFlag, StoredMessage
from remoting.names import DLQ_PREFIX, RETRY_PREFIX

# A group that brokers have from their start, for tools (MixAll.TOOLS_CONSUMER_GROUP).
_GROUP = "TOOLS_CONSUMER"
# Producer group of what is sent again (MixAll.CLIENT_INNER_PRODUCER_GROUP).
_PRODUCER = "CLIENT_INNER_PRODUCER"
# Brokers find messages by their unique id with this field (MixAll.UNIQUE_MSG_QUERY_FLAG), at any time.
_BY_ID = "_UNIQUE_KEY_QUERY"
_EVER = 2**62
_NOTHING = frozenset(
    (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
    )
)
# What brokers note in a message that has nothing to do with its next delivery.
_OUTDATED = (
    properties.POP_CK,
    properties.FIRST_POP_TIME,
    properties.RECONSUME_TIME,
    properties.DELAY_TIME_LEVEL,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_OUT_MS,
    properties.TRANSACTION_PREPARED,
)

Target = Literal["auto", "retry", "pop_retry", "topic"]


class DeadLetter(Answer):
    """A message in a dead letter queue; neither its body nor its keys are told."""

    message_id: str = Field(examples=["7F00000100002A9F0000000000000017"])
    topic: str = Field(description="where it was sent to first", examples=["orders"])
    tag: str | None = Field(examples=["TagA"])
    broker: str = Field(examples=["broker-a"])
    queue: int
    offset: int
    bytes: int
    reconsumed: int = Field(description="how often it was delivered again before it was given up")
    born: datetime | None
    stored: datetime | None = Field(description="when it was given up")


class Resend(Question):
    """Which dead letters a group shall get once more; they stay in the dead letter queue."""

    message_ids: list[Text] = Field(
        min_length=1, max_length=100, description="unique message ids", examples=[["7F000001000018B4AAC2000000000001"]]
    )
    to: Target = Field(
        "auto",
        description="retry: the group's retry topic, which remoting push consumers read; pop_retry: that of consumers "
        "that pop, as all gRPC consumers do; topic: where it was first, for every group; auto: pop_retry for what was "
        "retried so before and for groups with gRPC members here, else retry",
    )


class Resent(Answer):
    """What became of one of them."""

    message_id: str = Field(examples=["7F000001000018B4AAC2000000000001"])
    sent: bool
    topic: str | None = Field(description="where it went", examples=["%RETRY%orders-billing"])
    text: str = Field(description="why not, where it was not sent", examples=[""])


async def newest(replica: Replica, group: str, count: int) -> list[DeadLetter]:
    """The newest of a group's dead letters. Raises RemotingError (TopicNotExist: it never had any)."""
    topic = DLQ_PREFIX + group
    route = await replica.core.backend.route(topic)
    found: list[DeadLetter] = []
    for queues in route.queues:
        for queue in range(queues.readable):
            stored = await _tail(replica, topic, queues.broker, queue, count)
            found += [_described(message, queues.broker, group) for message in stored]
    found.sort(key=lambda letter: (letter.stored is not None, letter.stored), reverse=True)
    return found[:count]


async def _tail(replica: Replica, topic: str, broker: str, queue: int, count: int) -> list[StoredMessage]:
    where = {"topic": topic, "queueId": str(queue)}
    bounds = [
        int((await operator_channel.ask(replica.core, broker, code, dict(where))).fields.get("offset", "0"))
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    ]
    offset = max(bounds[0], bounds[1] - count)
    if offset >= bounds[1]:
        return []
    fields = {
        **where,
        "consumerGroup": _GROUP,
        "queueOffset": str(offset),
        "maxMsgNums": str(min(count, 32)),
        "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    stored: list[StoredMessage] = []
    while len(stored) < count and offset < bounds[1]:
        reply = await _found(replica, broker, RequestCode.PULL_MESSAGE, {**fields, "queueOffset": str(offset)})
        if reply is None:
            break
        more = messages.decode_messages(reply.body)
        if not more:
            break
        stored += more
        offset = more[-1].queue_offset + 1
    return stored[:count]


async def _found(replica: Replica, broker: str, code: RequestCode, fields: dict[str, str]) -> RemotingCommand | None:
    """The answer; None where it says that there is nothing."""
    try:
        return await operator_channel.ask(replica.core, broker, code, fields)
    except BrokerRefused as error:
        if error.answer in _NOTHING:
            return None
        raise


def _described(message: StoredMessage, broker: str, group: str) -> DeadLetter:
    return DeadLetter(
        message_id=_id(message),
        topic=_origin(message, group),
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


def _origin(message: StoredMessage, group: str) -> str:
    """The topic that a message was sent to first.

    Brokers note it where they retry a message of a consumer that pulls; of a popped one they note its retry topic.
    """
    topic = _noted(message)
    for prefix in _pop_retry_prefixes(group):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


def _noted(message: StoredMessage) -> str:
    return message.get(properties.RETRY_TOPIC) or message.get(properties.DLQ_ORIGIN_TOPIC) or message.topic


def _pop_retry_prefixes(group: str) -> tuple[str, str]:
    """Of a group's retry topics for consumers that pop: as brokers name them, and with enableRetryTopicV2."""
    return f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+"


async def resend(replica: Replica, group: str, wanted: Resend) -> list[Resent]:
    """Send dead letters once more, one after the other. Raises RemotingError (TopicNotExist: there are none)."""
    topic = DLQ_PREFIX + group
    brokers = (await replica.core.backend.route(topic)).brokers
    return [await _resend(replica, group, brokers, message_id, wanted.to) for message_id in wanted.message_ids]


async def _resend(replica: Replica, group: str, brokers: tuple[str, ...], message_id: str, to: Target) -> Resent:
    try:
        for broker in brokers:
            message = await _look_up(replica, group, broker, message_id)
            if message is not None:
                topic = await _target(replica, group, broker, message, to)
                await _send(replica, broker, topic, message, _origin(message, group))
                return Resent(message_id=message_id, sent=True, topic=topic, text="")
    except RemotingError as error:
        return Resent(message_id=message_id, sent=False, topic=None, text=str(error))
    return Resent(message_id=message_id, sent=False, topic=None, text="the dead letter queue does not hold it")


async def _look_up(replica: Replica, group: str, broker: str, message_id: str) -> StoredMessage | None:
    fields = {
        "topic": DLQ_PREFIX + group,
        "key": message_id,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(_EVER),
        _BY_ID: "true",
    }
    reply = await _found(replica, broker, RequestCode.QUERY_MESSAGE, fields)
    found = [] if reply is None else messages.decode_messages(reply.body)
    # Brokers find by a hash.
    fitting = [message for message in found if message.get(properties.UNIQ_CLIENT_MESSAGE_ID) == message_id]
    return max(fitting, key=lambda message: message.store_timestamp, default=None)


async def _target(replica: Replica, group: str, broker: str, message: StoredMessage, to: Target) -> str:
    if to == "topic":
        return _origin(message, group)
    if to == "pop_retry" or (to == "auto" and _pops(replica, group, message)):
        # Nobody may send to the new ones: their names have a sign in them that brokers refuse.
        if not await reads_old_retry_topics(replica, broker):
            raise RemotingError(
                f"the broker {broker} gives its pop retry topics names that it takes no messages for "
                "(enableRetryTopicV2 without retrieveMessageFromPopRetryTopicV1): resend to the topic"
            )
        return f"{RETRY_PREFIX}{group}_{_origin(message, group)}"
    return RETRY_PREFIX + group


def _pops(replica: Replica, group: str, message: StoredMessage) -> bool:
    if _noted(message).startswith(_pop_retry_prefixes(group)):
        return True
    members = replica.registry.members(Role.CONSUMER, group)
    return any(member.channel is not None and member.channel.protocol == "grpc" for member in members)


async def _send(replica: Replica, broker: str, topic: str, message: StoredMessage, origin: str) -> None:
    kept = {name: value for name, value in message.property_map.items() if name not in _OUTDATED}
    # By this consumers know what topic a message from their retry topic is of.
    kept[properties.RETRY_TOPIC] = origin
    fields = send_message.send_fields(
        producer_group=_PRODUCER,
        topic=topic,
        queue_id=0,
        broker=broker,
        default_topic_queues=1,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties.encode(kept),
    )
    await operator_channel.ask(replica.core, broker, RequestCode.SEND_MESSAGE_V2, fields, message.body)

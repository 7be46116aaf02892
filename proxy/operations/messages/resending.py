"""Sending stored messages again: to a group's retry topic, or to the topic that they were first sent to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from proxy.core.client_registry import Role
from proxy.operations import broker_requests
from proxy.operations.broker_settings import reads_old_retry_topics
from proxy.operations.replica import Replica
from remoting import properties, send_message
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.fastjson import load_object
from remoting.messages import HOSTS_V6, StoredMessage
from remoting.names import (
    LMQ_PREFIX,
    is_internal,
    is_pop_retry_topic,
    pop_retry_topic,
    pop_retry_topics,
    popped_topic,
    retry_topic,
)

# Producer group of resent messages (MixAll.CLIENT_INNER_PRODUCER_GROUP).
_PRODUCER = "CLIENT_INNER_PRODUCER"
# Properties of a message that describe its former deliveries.
_DELIVERY_PROPERTIES = (
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

# Retries of a message without a pop retry topic that only consumers that pull cause: brokers count the move of a popped
# message to the dead letter queue as one.
_CERTAIN_RETRIES = 2

Target = Literal["auto", "retry", "pop_retry", "topic"]


def origin(message: StoredMessage, group: str) -> str:
    """Return the topic that a message was first sent to.

    In a retried message of a consumer that pulls, brokers store it as a property; in a popped one, the retry topic.
    """
    return popped_topic(_stored_origin(message), group)


def _stored_origin(message: StoredMessage) -> str:
    return message.get(properties.RETRY_TOPIC) or message.get(properties.DLQ_ORIGIN_TOPIC) or message.topic


@dataclass(frozen=True, slots=True)
class Protocols:
    """The protocols of the connected members of a group: `grpc`, `remoting`, both or none."""

    names: list[str]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Return the protocols of all snapshots."""
        return cls(sorted({name for snapshot in snapshots for name in snapshot.names}))


def member_protocols(replica: Replica, group: str) -> Protocols:
    """Return the protocols of the group's consumers that are connected here."""
    members = replica.registry.members(Role.CONSUMER, group)
    return Protocols(sorted({member.channel.protocol for member in members if member.channel is not None}))


async def target_topic(
    replica: Replica, group: str, broker: str, message: StoredMessage, to: Target, protocols: Protocols
) -> str:
    """Return the topic to send a message of a group to.

    protocols: those of the group's members at all replicas. Raises RemotingError if the broker does not accept the
    message, or if it is not known how the group consumes.
    """
    if to == "topic":
        topic = origin(message, group)
        # The producer can set the property with the topic, and Gantry may write to internal topics.
        if is_internal(topic) or topic.startswith(LMQ_PREFIX) or topic in replica.settings.sync.topics:
            raise RemotingError(f"the message names the topic {topic}, which is not one of clients")
        return topic
    if to == "pop_retry" or (to == "auto" and await _pops(replica, group, broker, message, protocols)):
        # Topics of enableRetryTopicV2 have a `+` in their names, and brokers reject messages to such names.
        if not await reads_old_retry_topics(replica, broker):
            raise RemotingError(
                f"the broker {broker} accepts no messages to its pop retry topics "
                "(enableRetryTopicV2 without retrieveMessageFromPopRetryTopicV1): resend to the topic"
            )
        return pop_retry_topic(origin(message, group), group, v2=False)
    return retry_topic(group)


async def _pops(replica: Replica, group: str, broker: str, message: StoredMessage, protocols: Protocols) -> bool:
    """Return whether the message's consumers pop. Raises RemotingError if neither members nor the broker show it."""
    if is_pop_retry_topic(_stored_origin(message), group) or "grpc" in protocols.names:
        return True
    if protocols.names or message.reconsume_times >= _CERTAIN_RETRIES:
        return False
    if await _has_topic(replica, broker, set(pop_retry_topics(origin(message, group), group))):
        return True
    raise RemotingError(
        f"group {group} has no members, and nothing shows whether its consumers pop: choose `pop_retry` for gRPC and "
        "other popping consumers, or `retry` for remoting push consumers"
    )


async def _has_topic(replica: Replica, broker: str, names: set[str]) -> bool:
    """Return whether a broker has one of the topics. Raises RemotingError."""
    reply = await broker_requests.ask(replica.core, broker, RequestCode.GET_ALL_TOPIC_CONFIG, {})
    return not names.isdisjoint(load_object(reply.body).get("topicConfigTable") or ())


async def send_again(
    replica: Replica, broker: str, topic: str, message: StoredMessage, first_topic: str, queue: int = 0
) -> None:
    """Send a copy of a stored message to a topic. first_topic: the topic of the original. Raises RemotingError."""
    kept = {name: value for name, value in message.property_map.items() if name not in _DELIVERY_PROPERTIES}
    # Consumers of a retry topic restore the original topic from it.
    kept[properties.RETRY_TOPIC] = first_topic
    fields = send_message.send_fields(
        producer_group=_PRODUCER,
        topic=topic,
        queue_id=queue,
        broker=broker,
        default_topic_queues=1,
        # Its hosts may be of IPv6, those of the copy are not (`proxy.core.send_checks`).
        sys_flag=message.sys_flag & ~HOSTS_V6,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties.encode(kept),
    )
    await broker_requests.ask(replica.core, broker, RequestCode.SEND_MESSAGE_V2, fields, message.body)

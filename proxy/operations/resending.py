"""Sending stored messages again: to a group's retry topic, or to the topic that they were first sent to."""

from typing import Literal

from proxy.core.client_registry import Role
from proxy.operations import operator_channel
from proxy.operations.broker_settings import reads_old_retry_topics
from proxy.operations.replica import Replica
from remoting import properties, send_message
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.messages import StoredMessage
from remoting.names import RETRY_PREFIX

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

Target = Literal["auto", "retry", "pop_retry", "topic"]


def origin(message: StoredMessage, group: str) -> str:
    """Return the topic that a message was first sent to.

    In a retried message of a consumer that pulls, brokers store it as a property; in a popped one, the retry topic.
    """
    topic = _stored_origin(message)
    for prefix in pop_retry_prefixes(group):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


def _stored_origin(message: StoredMessage) -> str:
    return message.get(properties.RETRY_TOPIC) or message.get(properties.DLQ_ORIGIN_TOPIC) or message.topic


def pop_retry_prefixes(group: str) -> tuple[str, str]:
    """Return the prefixes of a group's pop retry topics: the default one, and that of enableRetryTopicV2."""
    return f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+"


def has_grpc_members(replica: Replica, group: str) -> bool:
    """Return whether a gRPC client that is connected here consumes in the group."""
    members = replica.registry.members(Role.CONSUMER, group)
    return any(member.channel is not None and member.channel.protocol == "grpc" for member in members)


async def target_topic(replica: Replica, group: str, broker: str, message: StoredMessage, to: Target) -> str:
    """Return the topic to send a message of a group to. Raises RemotingError if the broker does not accept it."""
    if to == "topic":
        return origin(message, group)
    if to == "pop_retry" or (to == "auto" and _pops(replica, group, message)):
        # Topics of enableRetryTopicV2 have a `+` in their names, and brokers reject messages to such names.
        if not await reads_old_retry_topics(replica, broker):
            raise RemotingError(
                f"the broker {broker} accepts no messages to its pop retry topics "
                "(enableRetryTopicV2 without retrieveMessageFromPopRetryTopicV1): resend to the topic"
            )
        return f"{RETRY_PREFIX}{group}_{origin(message, group)}"
    return RETRY_PREFIX + group


def _pops(replica: Replica, group: str, message: StoredMessage) -> bool:
    """Return whether the message's consumers pop, as far as is known."""
    return _stored_origin(message).startswith(pop_retry_prefixes(group)) or has_grpc_members(replica, group)


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
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties.encode(kept),
    )
    await operator_channel.ask(replica.core, broker, RequestCode.SEND_MESSAGE_V2, fields, message.body)

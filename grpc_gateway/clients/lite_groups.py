"""Rules of lite groups: consumer groups that are bound to the parent topic of their lite topics (RIP-83).

Codes and texts are those of the official proxy (ClientProcessor). A configuration that is only assumed is not checked.
"""

from collections.abc import Iterable

from grpc_gateway.clients.client_settings import LITE_CONSUMERS
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code
from remoting.topic_group_config import GroupConfig

# Names in a request above the group's quota. Official clients count the quota themselves.
_QUOTA_BUFFER = 300


def check_consumer(client_type: ClientType, topics: Iterable[str], group: GroupConfig) -> None:
    """Check that a lite group has lite consumers of its parent topic, and a regular group other consumers.

    topics: the consumer's subscriptions. Raises Refused (ILLEGAL_CONSUMER_GROUP, ILLEGAL_TOPIC).
    """
    if group.assumed:
        return
    if client_type in LITE_CONSUMERS:
        if not group.lite_bind_topic:
            raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"regular group cannot use LITE mode: {group.name}")
        for topic in topics:
            check_parent_topic(topic, group)
    elif group.lite_bind_topic:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"lite group must use LITE mode: {group.name}")


def check_parent_topic(topic: str, group: GroupConfig) -> None:
    """Check that a group receives lite topics of this topic. Raises Refused (ILLEGAL_TOPIC)."""
    if not group.assumed and topic != group.lite_bind_topic:
        raise Refused(
            Code.ILLEGAL_TOPIC,
            f"lite group {group.name} is expected to bind topic {group.lite_bind_topic or 'null'},"
            f" but actual is {topic}",
        )


def check_quota(names: int, group: GroupConfig) -> None:
    """Check the number of lite topics in one request. Raises Refused (LITE_SUBSCRIPTION_QUOTA_EXCEEDED).

    Brokers check only the number of subscriptions of all clients.
    """
    quota = group.max_lite_subscriptions
    if not group.assumed and names > quota + _QUOTA_BUFFER:
        raise Refused(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"lite subscription quota exceeded: {quota}")

"""Bodies of the heartbeats that register gRPC clients with brokers (RocketMQ's HeartbeatData)."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from grpc_gateway.clients.client import Client
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, FilterType
from remoting.properties import java_hash_code
from remoting.tag_expression import ALL, tags_of

# Consume types as the official proxy maps them.
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_TYPES = {
    ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    ClientType.LITE_SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    ClientType.PULL_CONSUMER: "CONSUME_ACTIVELY",
}
_SQL = "SQL92"
_TAG = "TAG"


def consumer_heartbeat(client: Client, group: str) -> bytes:
    """Return the HeartbeatData of a consumer; empty if the client has no subscription."""
    data = subscription_data(client)
    if not data:
        return b""
    consumer = {
        "groupName": group,
        "consumeType": CONSUME_TYPES.get(client.client_type, CONSUME_PASSIVELY),
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": data,
        "unitMode": False,
    }
    return orjson.dumps({"clientID": client.client_id, "producerDataSet": [], "consumerDataSet": [consumer]})


def producer_heartbeat(client_id: str, groups: Iterable[str]) -> bytes:
    """Return the HeartbeatData of a producer in these groups."""
    producers = [{"groupName": group} for group in groups]
    return orjson.dumps({"clientID": client_id, "producerDataSet": producers, "consumerDataSet": []})


def subscription_data(client: Client) -> list[dict[str, Any]]:
    """Return the SubscriptionData of each topic, from the client's settings or else from its receives."""
    filters = subscriptions(client)
    # Brokers keep the newest version of a group's subscription to a topic.
    return [_subscription(topic, filters[topic], client.revised_at) for topic in sorted(filters)]


def subscriptions(client: Client) -> Mapping[str, FilterExpression]:
    """Return the filter of each topic that a consumer receives from."""
    if client.settings is None:
        return client.subscriptions
    return {entry.topic.name: entry.expression for entry in client.settings.subscription.subscriptions}


def _subscription(topic: str, expression: FilterExpression, version: int) -> dict[str, Any]:
    """Return SubscriptionData as RocketMQ's FilterAPI builds it."""
    text = expression.expression
    sql = expression.type == FilterType.SQL
    tags = [] if sql else sorted(tags_of(text) or ())
    return {
        "classFilterMode": False,
        "topic": topic,
        "subString": text or ALL,
        "tagsSet": tags,
        "codeSet": [java_hash_code(tag) for tag in tags],
        "subVersion": version,
        "expressionType": _SQL if sql else _TAG,
    }

"""A client's groups as brokers know them: the parts of a heartbeat's body (HeartbeatData)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from protos.apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, FilterType
from remoting.properties import java_hash_code

if TYPE_CHECKING:
    from grpc_gateway.clients.client import Client

PASSIVELY = "CONSUME_PASSIVELY"
# As the official proxy has them.
CONSUME_TYPES = {
    ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    ClientType.LITE_SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    ClientType.PULL_CONSUMER: "CONSUME_ACTIVELY",
}
_ALL = "*"
_SQL = "SQL92"
_TAG = "TAG"


def consumer(client: "Client", group: str) -> bytes:
    """HeartbeatData of a consumer; without a subscription there is nothing to tell, and it is empty."""
    subscribed = of_client(client)
    if not subscribed:
        return b""
    part = {
        "groupName": group,
        "consumeType": CONSUME_TYPES.get(client.kind, PASSIVELY),
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscribed,
        "unitMode": False,
    }
    return orjson.dumps({"clientID": client.client_id, "producerDataSet": [], "consumerDataSet": [part]})


def producer(client_id: str, groups: Iterable[str]) -> bytes:
    """HeartbeatData of a producer in these groups."""
    parts = [{"groupName": group} for group in groups]
    return orjson.dumps({"clientID": client_id, "producerDataSet": parts, "consumerDataSet": []})


def of_client(client: "Client") -> list[dict[str, Any]]:
    """SubscriptionData for each topic: as its settings say, else as its receives do."""
    if client.settings is not None:
        entries = client.settings.subscription.subscriptions
        wanted: Mapping[str, FilterExpression] = {entry.topic.name: entry.expression for entry in entries}
    else:
        wanted = client.subscriptions
    # Brokers take the newer of two members' views of a topic.
    return [_subscription(topic, wanted[topic], client.revised_at) for topic in sorted(wanted)]


def _subscription(topic: str, expression: FilterExpression, version: int) -> dict[str, Any]:
    """SubscriptionData, as RocketMQ's FilterAPI builds it."""
    text = expression.expression.strip()
    sql = expression.type == FilterType.SQL
    tags = [] if sql or text in ("", _ALL) else sorted(filter(None, map(str.strip, text.split("||"))))
    return {
        "classFilterMode": False,
        "topic": topic,
        "subString": text or _ALL,
        "tagsSet": tags,
        "codeSet": [java_hash_code(tag) for tag in tags],
        "subVersion": version,
        "expressionType": _SQL if sql else _TAG,
    }

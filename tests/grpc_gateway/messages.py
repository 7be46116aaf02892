"""Routes, stored messages, receipt handles and settings for the tests of the gRPC service."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from grpc_gateway.consuming.receipt_handle import ReceiptHandle, make_handle
from protos.apache.rocketmq.v2.definition_pb2 import (
    UA,
    ClientType,
    FilterExpression,
    FilterType,
    Language,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.messages import StoredMessage
from remoting.routes import TopicRoute, parse


def route(topic: str = "orders", *brokers: str, read: int = 4, write: int = 4, perm: int = 6) -> TopicRoute:
    """Return the route of a topic on these brokers; on broker-a if none is given."""
    brokers = brokers or ("broker-a",)
    queues = [{"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm} for name in brokers]
    brokers_data = [{"cluster": "c", "brokerName": name, "brokerAddrs": {"0": f"{name}:10911"}} for name in brokers]
    return parse(topic, orjson.dumps({"queueDatas": queues, "brokerDatas": brokers_data}))


def resource(name: str = "orders") -> Resource:
    """Return the resource of a topic or group."""
    return Resource(name=name)


def stored(offset: int, body: bytes = b"body", topic: str = "orders", **pairs: str) -> StoredMessage:
    """Return a stored message of queue 1; `pairs` are properties."""
    return StoredMessage(
        topic=topic,
        body=body,
        properties=properties.encode({"UNIQ_KEY": f"id-{offset}", **pairs}),
        queue_id=1,
        queue_offset=offset,
        commit_log_offset=1_000 + offset,
        store_host=("198.51.100.1", 10911),
    )


def pop_reply(*popped: StoredMessage, pop_time: int | None = None, invisible: int = 60_000) -> RemotingCommand:
    """Return the reply to a pop with these messages, which must be in the order of their offsets."""
    fields = {
        "popTime": str(time.time_ns() // 1_000_000 if pop_time is None else pop_time),
        "invisibleTime": str(invisible),
        "reviveQid": "0",
        "startOffsetInfo": f"0 1 {popped[0].queue_offset}",
        "msgOffsetInfo": f"0 1 {','.join(str(message.queue_offset) for message in popped)}",
    }
    return commands.success(fields, b"".join(messages.encode_message(message) for message in popped))


def receipt_handle(
    offset: int = 5,
    *,
    age: float = 0.0,
    invisible: float = 60.0,
    order: bool = False,
    renewal_id: str = "",
    **changes: Any,
) -> ReceiptHandle:
    """Return the handle of a message popped `age` seconds ago for `invisible` seconds."""
    fields: dict[str, Any] = {
        "start_offset": offset,
        "pop_time": int((time.time() - age) * 1000),
        "invisible_time": int(invisible * 1000),
        "revive_queue_id": 999 if order else 0,
        "retry": "0",
        "broker_name": "broker-a",
        "queue_id": 1,
        "queue_offset": offset,
        "commit_log_offset": 1_000 + offset,
        "renewal_id": renewal_id,
    }
    return make_handle(**{**fields, **changes})


def producer_settings(*topics: str, language: Language = Language.JAVA) -> Settings:
    """Return the settings of a producer of these topics; of orders if none is given."""
    publishing = Publishing(topics=map(resource, topics or ("orders",)))
    return Settings(client_type=ClientType.PRODUCER, publishing=publishing, user_agent=UA(language=language))


def consumer_settings(
    group: str = "g",
    topics: Sequence[str] = ("orders",),
    kind: ClientType = ClientType.PUSH_CONSUMER,
    language: Language = Language.JAVA,
    expression: str = "*",
) -> Settings:
    """Return the settings of a consumer of these topics."""
    filter_expression = FilterExpression(type=FilterType.TAG, expression=expression)
    entries = [SubscriptionEntry(topic=resource(topic), expression=filter_expression) for topic in topics]
    subscription = Subscription(group=resource(group), subscriptions=entries)
    return Settings(client_type=kind, subscription=subscription, user_agent=UA(language=language))


def transaction_check(topic: str = "orders", **fields: str) -> RemotingCommand:
    """Return the CHECK_TRANSACTION_STATE of a broker."""
    half_message = stored(5, b"body", topic, TRAN_MSG="true", PGROUP=topic)
    all_fields = {
        "tranStateTableOffset": "7",
        "commitLogOffset": "1005",
        "msgId": "id-5",
        "transactionId": "id-5",
        "offsetMsgId": "C6336401000000010000000000000000",
        "bname": "broker-a",
        "topic": topic,
    }
    body = messages.encode_message(half_message)
    return commands.request(RequestCode.CHECK_TRANSACTION_STATE, {**all_fields, **fields}, body, oneway=True)

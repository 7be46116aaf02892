"""The requests of the table: each request code and each rpc, about the topic `orders` and the group `g`."""

from collections.abc import Iterator
from typing import Any

import orjson

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS, Direction
from tests.cluster.client import heartbeat
from tests.proxy.messages import VALUES, complete

TOPIC, GROUP = "orders", "g"
_C = RequestCode
_QUEUES = [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}]
_ACK = {"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 1, "pt": 1, "it": 60000, "b": "AQ=="}
_BODIES: dict[int, bytes] = {
    _C.HEART_BEAT: heartbeat("c1", {GROUP: [TOPIC]}, []),
    _C.LOCK_BATCH_MQ: orjson.dumps({"consumerGroup": GROUP, "clientId": "c1", "mqSet": _QUEUES}),
    _C.UNLOCK_BATCH_MQ: orjson.dumps({"consumerGroup": GROUP, "clientId": "c1", "mqSet": _QUEUES}),
    _C.CHECK_CLIENT_CONFIG: orjson.dumps(
        {
            "clientId": "c1",
            "group": GROUP,
            "subscriptionData": {"topic": TOPIC, "subString": "a", "expressionType": "TAG"},
        }
    ),
    _C.QUERY_ASSIGNMENT: orjson.dumps(
        {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c1", "strategyName": "AVG", "messageModel": "CLUSTERING"}
    ),
    _C.BATCH_ACK_MESSAGE: orjson.dumps({"brokerName": "broker-a", "acks": [_ACK]}),
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: orjson.dumps({"groupName": "table-group"}),
    _C.LITE_SUBSCRIPTION_CTL: orjson.dumps({"subscriptionSet": [{"clientId": "c1", "group": GROUP, "topic": TOPIC}]}),
}
_NOWHERE = "1000000000"
# Creating and deleting must not touch what the other rows are about.
_FIELDS: dict[int, dict[str, str]] = {
    _C.UPDATE_AND_CREATE_TOPIC: {"topic": "table-topic", "perm": "6", "topicFilterType": "SINGLE_TAG"},
    _C.DELETE_TOPIC_IN_BROKER: {"topic": "table-topic"},
    _C.DELETE_TOPIC_IN_NAMESRV: {"topic": "table-topic"},
    _C.DELETE_SUBSCRIPTIONGROUP: {"groupName": "table-group"},
    _C.UNREGISTER_CLIENT: {"consumerGroup": GROUP},
    _C.INVOKE_BROKER_TO_RESET_OFFSET: {"isForce": "false"},
    # No message is there: one of another topic would need another permission.
    _C.CONSUMER_SEND_MSG_BACK: {"offset": _NOWHERE},
    _C.VIEW_MESSAGE_BY_ID: {"offset": _NOWHERE},
    _C.END_TRANSACTION: {"topic": TOPIC, "commitLogOffset": _NOWHERE},
}


def remoting_requests() -> Iterator[tuple[str, RemotingCommand]]:
    """Yield the label and the unsigned request of each row."""
    for code, spec in REQUESTS.items():
        if spec.direction is Direction.BROKER:
            continue
        command = complete(spec, **_FIELDS.get(code, {}))
        if spec.topic is not None and spec.topic in VALUES | {"topic": ""} and spec.topic not in command.fields:
            command.fields[spec.topic] = TOPIC
        command.body = _BODIES.get(code, b"")
        yield spec.name, command
        if code == _C.END_TRANSACTION:
            yield f"{spec.name}, blank topic", complete(spec, topic="", commitLogOffset=_NOWHERE)
        elif code == _C.HEART_BEAT:
            yield f"{spec.name}, no ext fields", commands.request(code, {}, command.body)


def rpcs() -> Iterator[tuple[str, Any]]:
    """Yield the name and the request of each rpc."""
    topic, group = d.Resource(name=TOPIC), d.Resource(name=GROUP)
    system = d.SystemProperties(message_id="01" + "0" * 32)
    values: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "message_queue": d.MessageQueue(topic=topic, broker=d.Broker(name="broker-a")),
        "messages": [d.Message(topic=topic, body=b"x", system_properties=system)],
        "endpoints": d.Endpoints(scheme=d.AddressScheme.IPv4, addresses=[d.Address(host="127.0.0.1", port=8080)]),
        "client_type": d.ClientType.PUSH_CONSUMER,
        "batch_size": 1,
    }
    for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods:
        if method.name == "Telemetry":
            settings = d.Settings(
                client_type=d.ClientType.PUSH_CONSUMER,
                subscription=d.Subscription(group=group, subscriptions=[d.SubscriptionEntry(topic=topic)]),
            )
            yield method.name, pb.TelemetryCommand(settings=settings)
            continue
        kind = getattr(pb, method.input_type.name)
        names = {field.name for field in kind.DESCRIPTOR.fields}
        yield method.name, kind(**{name: value for name, value in values.items() if name in names})

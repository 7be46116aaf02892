"""Requests, heartbeats and routes as clients and name servers send them."""

from collections.abc import Mapping, Sequence

import orjson

from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import RequestSpec
from remoting.routes import TopicRoute, parse


def route(topic: str = "orders", *brokers: str) -> TopicRoute:
    """A topic on these brokers (broker-a where none is given), each with four queues and one slave."""
    brokers = brokers or ("broker-a",)
    queues = [{"brokerName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in brokers]
    datas = [
        {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": f"{name}:10911", "1": f"{name}-slave:10911"}}
        for name in brokers
    ]
    return parse(topic, orjson.dumps({"queueDatas": queues, "brokerDatas": datas}))


def request(code: int, body: bytes = b"", oneway: bool = False, /, **fields: object) -> RemotingCommand:
    return commands.request(code, {name: str(value) for name, value in fields.items()}, body, oneway)


def java(command: RemotingCommand, version: int) -> RemotingCommand:
    """The command as a Java client of this version number sends it."""
    command.header.update(language="JAVA", version=version)
    return command


def heartbeat(
    client_id: str = "c1",
    consumers: Mapping[str, Sequence[str]] | None = None,
    producers: Sequence[str] = (),
    model: str = "CLUSTERING",
) -> RemotingCommand:
    """HEART_BEAT of consumers, topics by group, and producers."""
    data = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in producers],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": model,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": "*"} for topic in topics],
            }
            for group, topics in (consumers or {}).items()
        ],
    }
    return request(RequestCode.HEART_BEAT, orjson.dumps(data))


# A value for every field that some request requires.
VALUES = {
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 1 0",
    "recallHandle": "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgQUJD",
    "consumerGroup": "g",
    "producerGroup": "p",
    "group": "g",
    "topic": "orders",
    "clientId": "c1",
    "clientID": "c1",
    "a": "p",
    "b": "orders",
    "key": "k",
}


def complete(spec: RequestSpec, **more: str) -> RemotingCommand:
    """A request with every field that its row requires, for broker-a."""
    fields = {name: VALUES.get(name, "0") for name in spec.required}
    body = BODIES.get(spec.code, b"")
    return commands.request(spec.code, {**fields, spec.broker: "broker-a", **more}, body)


BODIES: dict[int, bytes] = {
    RequestCode.HEART_BEAT: heartbeat().body,
    RequestCode.LOCK_BATCH_MQ: b'{"mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}',
    RequestCode.CHECK_CLIENT_CONFIG: b'{"subscriptionData":{"topic":"orders"}}',
    RequestCode.QUERY_ASSIGNMENT: b'{"topic":"orders"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"brokerName":"broker-a","acks":[]}',
}

"""Clients and groups: heartbeats, farewells, who is in a group (RocketMQ's ClientManageProcessor)."""

from typing import Any

import orjson

from proxy.core.channel import Channel
from proxy.core.heartbeat import parse
from proxy.embedded.broker import names
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.filters import TAG, build
from proxy.embedded.broker.members import Client, subscribed
from proxy.embedded.broker.request import Answer, Refused, Request
from remoting import command as commands
from remoting.codes import ResponseCode, version_text
from remoting.errors import BodyError, ConsumerNotOnline, InvalidRequest
from remoting.fastjson import load_object

_UNIT_SUBSCRIPTION = 2


def heartbeat(broker: Broker, request: Request) -> Answer:
    """HEART_BEAT, in both versions: with a fingerprint, the subscriptions may be left out."""
    channel = _channel(request)
    data = load_object(request.command.body)
    keep = bool(data.get("withoutSub")) and bool(data.get("heartbeatFingerprint"))
    beat = parse(request.command.body)
    client = Client(beat.client_id, request.command.language, request.command.version, request.now)
    changed = False
    for group, consumer in beat.consumers.items():
        changed |= _join(broker, group, channel, client, consumer.data, keep)
    for group in beat.producers:
        broker.members.produce(group, channel, client)
    # A client that hears of a change sends its subscriptions the next time.
    change = changed if data.get("heartbeatFingerprint") else True
    return commands.success({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(change).lower()})


def _join(broker: Broker, name: str, channel: Channel, client: Client, data: dict[str, Any], keep: bool) -> bool:
    group = broker.groups.find(name)
    if group is None:
        return False
    topics = [str(item.get("topic")) for item in subscribed(data)]
    order = any(topic.order for topic in map(broker.topics.get, topics) if topic is not None)
    sys_flag = _UNIT_SUBSCRIPTION if data.get("unitMode") else 0
    broker.topics.create(names.retry_topic(name), group.retry_queues, order=order, sys_flag=sys_flag)
    if not broker.members.consume(name, channel, client, data, keep):
        return False
    broker.changed(name)
    return True


def unregister(broker: Broker, request: Request) -> Answer:
    """UNREGISTER_CLIENT."""
    channel, _ = _channel(request), request.text("clientID")
    if group := request.fields.get("producerGroup"):
        broker.members.stop_producing(group, channel)
    if (group := request.fields.get("consumerGroup")) and broker.members.stop_consuming(group, channel):
        broker.changed(group)
    return commands.success()


def check_config(_: Broker, request: Request) -> Answer:
    """CHECK_CLIENT_CONFIG: whether a subscription's expression can be understood."""
    data = load_object(request.command.body)
    subscription = data.get("subscriptionData")
    if subscription is not None and not isinstance(subscription, dict):
        raise BodyError("the subscriptionData is not an object")
    kind = None if subscription is None else str(subscription.get("expressionType") or TAG)
    if subscription is not None and kind != TAG:
        try:
            build(str(subscription.get("subString") or ""), kind)
        except BodyError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    return commands.success()


def consumer_list(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_LIST_BY_GROUP: client ids."""
    group = request.text("consumerGroup")
    consumers = broker.members.consumers.get(group)
    if consumers is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nobody is in consumer group {group}")
    return commands.success(body=orjson.dumps({"consumerIdList": consumers.client_ids}))


def consumer_connections(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_CONNECTION_LIST: who is in a group, and what it subscribes to."""
    group = request.text("consumerGroup")
    consumers = broker.members.consumers.get(group)
    if consumers is None:
        raise ConsumerNotOnline(f"nobody is in consumer group {group}")
    data = {
        "connectionSet": _connections(consumers.clients),
        "subscriptionTable": {name: dict(item.data) for name, item in consumers.subscriptions.items()},
        "consumeType": consumers.consume_type,
        "messageModel": consumers.message_model,
        "consumeFromWhere": consumers.from_where,
    }
    return commands.success(body=orjson.dumps(data))


def producer_connections(broker: Broker, request: Request) -> Answer:
    """GET_PRODUCER_CONNECTION_LIST: who is in a producer group."""
    group = request.text("producerGroup")
    clients = broker.members.producers.get(group)
    if clients is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nobody is in producer group {group}")
    return commands.success(body=orjson.dumps({"connectionSet": _connections(clients)}))


def producers(broker: Broker, request: Request) -> Answer:
    """GET_ALL_PRODUCER_INFO: who is in each producer group."""
    data = {
        group: [
            {
                "clientId": client.client_id,
                "remoteIP": str(channel.peer.address),
                "language": client.language,
                "version": client.version,
                "lastUpdateTimestamp": client.seen,
            }
            for channel, client in clients.items()
        ]
        for group, clients in broker.members.producers.items()
    }
    return commands.success(body=orjson.dumps({"data": data}))


def _connections(clients: dict[Channel, Client]) -> list[dict[str, Any]]:
    return [
        {
            "clientId": client.client_id,
            "clientAddr": str(channel.peer.address),
            "language": client.language,
            "version": client.version,
            "versionDesc": version_text(client.version),
        }
        for channel, client in clients.items()
    ]


def _channel(request: Request) -> Channel:
    if request.channel is None:
        raise InvalidRequest("only a client can be a member of a group")
    return request.channel

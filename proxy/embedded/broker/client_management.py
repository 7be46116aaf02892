"""Handlers of heartbeats, of UNREGISTER_CLIENT, and of requests for the members of groups (ClientManageProcessor)."""

from typing import Any

import orjson

from proxy.core.channel import Channel
from proxy.core.heartbeat import check_groups, parse
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.filters import TAG, new_filter
from proxy.embedded.broker.members import Client, subscribed
from proxy.embedded.broker.request import Answer, Request
from remoting import command as commands
from remoting.codes import ResponseCode, version_text
from remoting.errors import BodyError, ConsumerNotOnline, InvalidRequest
from remoting.fastjson import load_object, load_request
from remoting.names import retry_topic

_UNIT_SUBSCRIPTION = 2


def heartbeat(broker: Broker, request: Request) -> Answer:
    """HEART_BEAT in both versions: with a fingerprint, unchanged subscriptions may be omitted."""
    channel = _channel(request)
    beat = parse(request.command.body)
    data = load_object(request.command.body)
    keep = bool(data.get("withoutSub")) and bool(data.get("heartbeatFingerprint"))
    client = Client(beat.client_id, request.command.language, request.command.version, request.now)
    check_groups(broker.members.groups_after(channel, beat.client_id, beat.producers, beat.consumers))
    changed = False
    for group, consumer in beat.consumers.items():
        changed |= _join(broker, group, channel, client, consumer.data, keep)
    for group in beat.producers:
        broker.members.add_producer(group, channel, client)
    # After a change, the client includes its subscriptions in the next heartbeat.
    reported = changed if data.get("heartbeatFingerprint") else True
    return commands.success({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(reported).lower()})


def _join(broker: Broker, name: str, channel: Channel, client: Client, data: dict[str, Any], keep: bool) -> bool:
    group = broker.groups.find(name)
    if group is None:
        return False
    topics = [str(item.get("topic")) for item in subscribed(data)]
    order = any(topic.order for topic in map(broker.topics.get, topics) if topic is not None)
    sys_flag = _UNIT_SUBSCRIPTION if data.get("unitMode") else 0
    broker.topics.create(retry_topic(name), group.retry_queues, order=order, sys_flag=sys_flag)
    if not broker.members.add_consumer(name, channel, client, data, keep):
        return False
    broker.notify_members(name)
    return True


def unregister(broker: Broker, request: Request) -> Answer:
    """UNREGISTER_CLIENT."""
    channel, _ = _channel(request), request.text("clientID")
    if group := request.fields.get("producerGroup"):
        broker.members.remove_producer(group, channel)
    if (group := request.fields.get("consumerGroup")) and broker.members.remove_consumer(group, channel):
        broker.notify_members(group)
    return commands.success()


def check_config(_: Broker, request: Request) -> Answer:
    """CHECK_CLIENT_CONFIG: check the expression of a subscription."""
    data = load_request(request.command.body)
    subscription = data.get("subscriptionData")
    if subscription is not None and not isinstance(subscription, dict):
        raise BodyError("the subscriptionData is not an object")
    kind = None if subscription is None else str(subscription.get("expressionType") or TAG)
    if subscription is not None and kind != TAG:
        try:
            new_filter(str(subscription.get("subString") or ""), kind)
        except BodyError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    return commands.success()


def consumer_list(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_LIST_BY_GROUP: return the client ids of a group."""
    group = request.text("consumerGroup")
    consumers = broker.members.consumers.get(group)
    if consumers is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"consumer group {group} has no members")
    return commands.success(body=orjson.dumps({"consumerIdList": consumers.client_ids}))


def consumer_connections(broker: Broker, request: Request) -> Answer:
    """GET_CONSUMER_CONNECTION_LIST: return the members and subscriptions of a group."""
    group = request.text("consumerGroup")
    consumers = broker.members.consumers.get(group)
    if consumers is None:
        raise ConsumerNotOnline(f"consumer group {group} has no members")
    data = {
        "connectionSet": _connections(consumers.clients),
        "subscriptionTable": {name: dict(item.data) for name, item in consumers.subscriptions.items()},
        "consumeType": consumers.consume_type,
        "messageModel": consumers.message_model,
        "consumeFromWhere": consumers.from_where,
    }
    return commands.success(body=orjson.dumps(data))


def producer_connections(broker: Broker, request: Request) -> Answer:
    """GET_PRODUCER_CONNECTION_LIST: return the members of a producer group."""
    group = request.text("producerGroup")
    clients = broker.members.producers.get(group)
    if clients is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"producer group {group} has no members")
    return commands.success(body=orjson.dumps({"connectionSet": _connections(clients)}))


def producers(broker: Broker, request: Request) -> Answer:
    """GET_ALL_PRODUCER_INFO: return the members of each producer group."""
    data = {
        group: [
            {
                "clientId": client.client_id,
                "remoteIP": str(channel.peer.address),
                "language": client.language,
                "version": client.version,
                "lastUpdateTimestamp": client.last_heartbeat,
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

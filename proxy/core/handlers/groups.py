"""Questions about a consumer group: its members, its connections, its subscriptions, its queues."""

from typing import Any

import orjson

from proxy.core.client_registry import Member, Role
from proxy.core.context import Context
from proxy.core.forwarding import send
from proxy.core.messaging import Messaging, Reply
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, RemotingError, ServiceUnavailable
from remoting.fastjson import load_object


async def consumer_list(core: Messaging, context: Context) -> RemotingCommand:
    """GET_CONSUMER_LIST_BY_GROUP: the members here, behind other proxies, and those that brokers know, each once.

    The broker knows clients of other replicas and clients that do not use a proxy: while a group
    moves behind one, both kinds have to agree on who owns which queue.
    """
    group = context.fields["consumerGroup"]
    known = core.registry.consumer_ids(group)
    reply = await _ask_broker(core, context)
    if reply is not None and reply.code == ResponseCode.SUCCESS:
        known |= set(load_object(reply.body).get("consumerIdList") or ())
    if known:
        return commands.success(body=orjson.dumps({"consumerIdList": sorted(known)}))
    if reply is not None:
        return reply
    raise ConsumerNotOnline(f"no consumer of group {group} is known")


async def consumer_connections(core: Messaging, context: Context) -> RemotingCommand:
    """GET_CONSUMER_CONNECTION_LIST: as above, with our own clients' real addresses instead of ours."""
    group = context.fields["consumerGroup"]
    members = core.registry.members(Role.CONSUMER, group)
    reply = await _ask_broker(core, context)
    if reply is not None and reply.code == ResponseCode.SUCCESS:
        connections = load_object(reply.body)
    elif members:
        connections = _connections(members[0], group)
    elif reply is not None:
        return reply
    else:
        raise ConsumerNotOnline(f"no consumer of group {group} is known")
    own = {member.client_id: _connection(member) for member in members}
    others = [item for item in connections.get("connectionSet") or () if item.get("clientId") not in own]
    connections["connectionSet"] = others + list(own.values())
    return commands.success(body=orjson.dumps(connections))


async def check_client_config(core: Messaging, context: Context) -> RemotingCommand:
    """CHECK_CLIENT_CONFIG: a broker of the topic compiles the filter expression."""
    subscription = load_object(context.command.body).get("subscriptionData") or {}
    if not isinstance(subscription, dict):
        raise BodyError("subscriptionData is not an object")
    return await _ask(core, context, await _broker_of(core, context, str(subscription.get("topic") or "")))


async def query_assignment(core: Messaging, context: Context) -> RemotingCommand:
    """QUERY_ASSIGNMENT: the same broker for all members of a group, as each shares the queues out by itself."""
    topic = str(load_object(context.command.body).get("topic") or "")
    return await _ask(core, context, await _broker_of(core, context, topic))


async def _ask(core: Messaging, context: Context, broker: str) -> RemotingCommand:
    reply = send(core, context, broker)
    return commands.success() if reply is None else await reply


async def _ask_broker(core: Messaging, context: Context) -> RemotingCommand | None:
    """What a broker that knows the asking client says; None where none can be asked."""
    try:
        brokers = sorted(context.channel.session.registered_brokers) or sorted(await core.backend.brokers())
    except RemotingError:
        return None
    for broker in brokers:
        reply: Reply | None = send(core, context, broker)
        if reply is None:
            return None
        try:
            return await reply
        except RemotingError:
            continue
    return None


async def _broker_of(core: Messaging, context: Context, topic: str) -> str:
    """The topic's first broker in the order of names."""
    if context.channel.peer.broker is not None:
        return context.channel.peer.broker
    found = await core.backend.route(topic)
    brokers = found.readable() or found.brokers
    if not brokers:
        raise ServiceUnavailable(f"topic {topic} has no broker now")
    return brokers[0]


def _connections(member: Member, group: str) -> dict[str, Any]:
    """ConsumerConnection as far as a member's heartbeat tells it."""
    data = member.consumer_data[group].data
    return {
        "connectionSet": [],
        "subscriptionTable": {item["topic"]: item for item in data.get("subscriptionDataSet") or ()},
        "consumeType": data.get("consumeType"),
        "messageModel": data.get("messageModel"),
        "consumeFromWhere": data.get("consumeFromWhere"),
    }


def _connection(member: Member) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "clientAddr": member.address,
        "language": member.language,
        "version": member.version,
    }

"""Queries about a consumer group: members, connections, subscriptions, queue assignment."""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Any

import orjson

from proxy.core.client_registry import Member, Role
from proxy.core.context import Context
from proxy.core.forwarding import ask, send
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.denial import is_denial
from remoting.errors import BodyError, ConsumerNotOnline, RemotingError, RequestTimeout, ServiceUnavailable
from remoting.fastjson import load_object, load_request
from remoting.outcomes import Reply
from remoting.tasks import retrieve_error

# Seconds for the brokers' answer, since Java clients wait 3 s for it, and for that of each broker but the last.
_ANSWER_SECONDS = 2.5
_FIRST_SECONDS = 1.0


async def consumer_list(core: Messaging, context: Context) -> RemotingCommand:
    """GET_CONSUMER_LIST_BY_GROUP: the union of the registry's members and a broker's members.

    The broker's list includes clients of other replicas and clients that do not use a proxy: while a group moves
    behind a proxy, all of them must agree on the assignment of queues.
    """
    group = context.fields["consumerGroup"]
    client_ids = core.registry.consumer_ids(group)
    reply = await _ask_broker(core, context)
    if reply is not None and is_denial(reply):
        return reply
    if reply is not None and reply.code == ResponseCode.SUCCESS:
        client_ids |= set(load_object(reply.body).get("consumerIdList") or ())
    if client_ids:
        return commands.success(body=orjson.dumps({"consumerIdList": sorted(client_ids)}))
    if reply is not None:
        return reply
    raise ConsumerNotOnline(f"no consumer of group {group} is online")


async def consumer_connections(core: Messaging, context: Context) -> RemotingCommand:
    """GET_CONSUMER_CONNECTION_LIST: likewise, with the real addresses of local clients instead of the proxy's."""
    group = context.fields["consumerGroup"]
    reply = await _ask_broker(core, context)
    if reply is not None and is_denial(reply):
        return reply
    # Members may have left the group while the broker was asked.
    members = core.registry.members(Role.CONSUMER, group)
    if reply is not None and reply.code == ResponseCode.SUCCESS:
        connections = load_object(reply.body)
    elif members:
        connections = _connections(members[0], group)
    elif reply is not None:
        return reply
    else:
        raise ConsumerNotOnline(f"no consumer of group {group} is online")
    connections["connectionSet"] = with_members(connections.get("connectionSet") or (), members)
    return commands.success(body=orjson.dumps(connections))


def with_members(connections: Iterable[dict[str, Any]], members: Iterable[Member]) -> list[dict[str, Any]]:
    """Return a group's connections at a broker with those of its local members, which have their real addresses."""
    local = {member.client_id: _connection(member) for member in members}
    return [item for item in connections if item.get("clientId") not in local] + list(local.values())


async def check_client_config(core: Messaging, context: Context) -> RemotingCommand:
    """CHECK_CLIENT_CONFIG: let a broker of the topic compile the filter expression."""
    subscription = load_request(context.command.body).get("subscriptionData") or {}
    if not isinstance(subscription, dict):
        raise BodyError("subscriptionData is not an object")
    return await ask(core, context, await _broker_of(core, context, str(subscription.get("topic") or "")))


async def query_assignment(core: Messaging, context: Context) -> RemotingCommand:
    """QUERY_ASSIGNMENT: sent to the same broker for all members of a group, as each broker assigns by itself."""
    topic = str(load_request(context.command.body).get("topic") or "")
    return await ask(core, context, await _broker_of(core, context, topic))


async def _ask_broker(core: Messaging, context: Context) -> RemotingCommand | None:
    """Return the reply of a broker, as `_first_reply`; None without one.

    Raises RequestTimeout likewise, and ServiceUnavailable without a reply to a request about which brokers decide.
    """
    reply = await _first_reply(core, context)
    if reply is None and core.signing.left_to_brokers(context.channel, context.command):
        raise ServiceUnavailable("no broker answers, and brokers decide about this request")
    return reply


async def _first_reply(core: Messaging, context: Context) -> RemotingCommand | None:
    """Return the reply of the first broker to answer, of those at which the client is registered; None without one.

    Brokers that hang are asked last. Raises RequestTimeout if brokers do not answer in time: the client keeps its
    queues then, whereas a list without their members would let it take those of others.
    """
    try:
        brokers = sorted(context.channel.session.membership.registered_brokers) or sorted(await core.backend.brokers())
    except RemotingError:
        return None
    brokers.sort(key=core.backend.unresponsive_brokers.__contains__)
    deadline = monotonic() + _ANSWER_SECONDS
    silent = None
    for broker in brokers:
        left = deadline - monotonic()
        if left <= 0:
            break
        try:
            reply: Reply | None = send(core, context, broker)
            if reply is None:
                return None
            # Not a timeout of the request, after which the connection to the broker would be closed.
            await asyncio.wait((reply,), timeout=left if broker == brokers[-1] else min(_FIRST_SECONDS, left))
            if reply.done():
                return reply.result()
        except RemotingError:
            continue
        silent = broker
        reply.add_done_callback(retrieve_error)
    if silent is not None:
        raise RequestTimeout(f"the broker {silent} does not answer {context.known_spec.name} in time")
    return None


async def _broker_of(core: Messaging, context: Context, topic: str) -> str:
    """Return the topic's first broker in the order of names."""
    if context.channel.peer.broker is not None:
        return context.channel.peer.broker
    route = await core.backend.route(topic)
    brokers = route.readable() or route.brokers
    if not brokers:
        raise ServiceUnavailable(f"topic {topic} has no available broker")
    return brokers[0]


def _connections(member: Member, group: str) -> dict[str, Any]:
    """Return ConsumerConnection without connections, from the heartbeat of one member."""
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

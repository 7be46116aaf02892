"""Requests of operators' tools about topics and groups.

Tools name no broker: at the brokers, each has an address of its own. Through the access point their requests for
several brokers arrive at one address, as one request or as equal ones, which therefore stand for all brokers. A request
with a broker's name, or at a listener of one broker, concerns that broker only.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proxy.core.context import Context
from proxy.core.forwarding import ask
from proxy.core.handlers import every_broker
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted
from remoting.fastjson import ObjectKeys
from remoting.names import SYNC_TOPICS_FIELD, list_of

CHANGES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
QUERIES = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
)
# The replies have a table by queue, and each broker has queues of its own.
TABLES = (
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
_LISTS = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
# Requests for the brokers of the topic only; others may not have the topic.
_OF_TOPIC = (
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)


async def change(core: Messaging, context: Context) -> RemotingCommand:
    """Change all brokers; return the first error. Raises RemotingError, NotPermitted for a topic that Gantry needs."""
    if context.code == RequestCode.DELETE_TOPIC_IN_BROKER and context.topic in core.settings.own_topics:
        # Tools know the brokers' topics, and not those of the settings.
        raise NotPermitted(f"topic {context.topic} belongs to Gantry")
    reply = (await _ask_all(core, context, await _brokers(core, context)))[0]
    if context.code == RequestCode.UPDATE_AND_CREATE_TOPIC and reply.code == ResponseCode.SUCCESS:
        core.backend.topic_created(context.fields["topic"])
    return reply


async def query(core: Messaging, context: Context) -> RemotingCommand:
    """Return the reply of one broker. Raises RemotingError.

    That with all topics or groups also names the topics of the settings by which replicas share state.
    """
    names = await _brokers(core, context)
    if len(names) == 1:
        reply = await ask(core, context, names[0])
    else:
        reply = await every_broker.ask_one(core, context, names)
    if context.code not in _LISTS or reply.code != ResponseCode.SUCCESS:
        return reply
    return commands.success({**reply.fields, SYNC_TOPICS_FIELD: list_of(core.settings.sync.topics)}, reply.body)


async def merge(core: Messaging, context: Context) -> RemotingCommand:
    """Return the tables of all brokers as one, or the first error. Raises RemotingError."""
    names = await _brokers(core, context)
    replies = await _ask_all(core, context, names)
    if len(names) == 1 or len(replies) < len(names):
        return replies[0]
    bodies = [fastjson.load_object(reply.body) for reply in replies if reply.body]
    return commands.success(dict(replies[0].fields), fastjson.dumps(_merged(bodies)))


async def _ask_all(core: Messaging, context: Context, names: Sequence[str]) -> Sequence[RemotingCommand]:
    if len(names) == 1:
        return (await ask(core, context, names[0]),)
    return await every_broker.ask_all(core, context, names)


def _merged(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one body: tables are united, and rates are the mean of all brokers.

    A tool sends one request per broker, and adds the rates in the replies.
    """
    merged: dict[str, Any] = {}
    for body in bodies:
        for name, value in body.items():
            unite = _UNITE.get(name)
            merged[name] = value if unite is None or name not in merged else unite(merged[name], value)
    for name in _RATES & merged.keys():
        merged[name] /= len(bodies)
    return merged


def _unite_tables(one: object, other: object) -> ObjectKeys:
    return ObjectKeys((*_pairs(one), *_pairs(other)))


def _pairs(table: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(table, ObjectKeys):
        return table.pairs
    # An empty one.
    return table.items() if isinstance(table, dict) else ()


_RATES = frozenset({"consumeTps", "topicPutTps"})
_UNITE: dict[str, Callable[[Any, Any], Any]] = {
    "offsetTable": _unite_tables,
    **dict.fromkeys(_RATES, operator.add),
}


async def _brokers(core: Messaging, context: Context) -> Sequence[str]:
    return await every_broker.concerned(core, context, context.code in _OF_TOPIC)

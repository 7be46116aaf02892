"""Requests that operators' tools send to brokers and name servers, and clients do not: their handlers.

As in `proxy.core.handlers.administration`, a request that names no broker stands for all brokers, or all of the topic
that it names. Requests without an entry here concern one broker, which the request or its listener must name if there
are several: its settings, its figures, its table of offsets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from proxy.core.client_registry import Role
from proxy.core.context import Context
from proxy.core.handlers import every_broker
from proxy.core.handlers.groups import with_members
from proxy.core.messaging import Handling, Messaging
from remoting import command as commands
from remoting.broker_requests import TOOL_REQUESTS
from remoting.codes import RequestCode, ResponseCode, ToolCode
from remoting.command import RemotingCommand
from remoting.denial import is_denial
from remoting.errors import RemotingError
from remoting.fastjson import load_object, load_request
from remoting.requests import Action, RequestSpec
from remoting.signature import without_signature

_T = ToolCode

NAME_SERVER_QUERIES: Final = (
    _T.GET_KV_CONFIG,
    _T.GET_KVLIST_BY_NAMESPACE,
    _T.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    _T.GET_TOPICS_BY_CLUSTER,
    _T.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    _T.GET_UNIT_TOPIC_LIST,
    _T.GET_HAS_UNIT_SUB_TOPIC_LIST,
    _T.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    _T.GET_NAMESRV_CONFIG,
)
NAME_SERVER_CHANGES: Final = (
    _T.PUT_KV_CONFIG,
    _T.DELETE_KV_CONFIG,
    _T.WIPE_WRITE_PERM_OF_BROKER,
    _T.ADD_WRITE_PERM_OF_BROKER,
)
BROKER_CHANGES: Final = (
    _T.UPDATE_AND_CREATE_TOPIC_LIST,
    _T.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    _T.CLONE_GROUP_OFFSET,
    _T.SET_MESSAGE_REQUEST_MODE,
    _T.CLEAN_EXPIRED_CONSUMEQUEUE,
    _T.CLEAN_UNUSED_TOPIC,
    _T.DELETE_EXPIRED_COMMITLOG,
)
# The requests of tools before a cluster. A broker's configuration may have the secrets of its users, so that reading it
# needs the permission to change, as with users.
CLUSTER_TOOL_REQUESTS: Final[Mapping[int, RequestSpec]] = {
    **TOOL_REQUESTS,
    RequestCode.GET_BROKER_CONFIG: replace(TOOL_REQUESTS[RequestCode.GET_BROKER_CONFIG], action=Action.UPDATE),
}
# Each broker has the same.
BROKER_QUERIES: Final = (_T.GET_ALL_MESSAGE_REQUEST_MODE, _T.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)


async def _query_name_server(core: Messaging, context: Context) -> RemotingCommand:
    """Return a name server's reply to the request as Gantry's own: they do not know clients. Raises RemotingError."""
    return await core.backend.query_name_server(context.code, without_signature(context.fields))


async def _change_name_servers(core: Messaging, context: Context) -> RemotingCommand:
    """Change all name servers, likewise; return the first error. Raises RemotingError."""
    return await core.backend.change_name_servers(context.code, without_signature(context.fields))


async def _change(core: Messaging, context: Context) -> RemotingCommand:
    """Change all brokers; return the first error. Raises RemotingError."""
    reply = (await every_broker.ask_all(core, context, await _brokers(core, context)))[0]
    if context.code == _T.UPDATE_AND_CREATE_TOPIC_LIST and reply.code == ResponseCode.SUCCESS:
        for config in load_request(context.command.body).get("topicConfigList") or ():
            core.backend.topic_created(str(config.get("topicName")))
    return reply


async def _query(core: Messaging, context: Context) -> RemotingCommand:
    """Return the reply of one broker. Raises RemotingError."""
    return await every_broker.ask_one(core, context, await _brokers(core, context))


async def _find(core: Messaging, context: Context) -> RemotingCommand:
    """Return the reply of the first broker that knows the answer, else that of the last one.

    Raises RemotingError if a broker does not reply and no other knows the answer.
    """
    found = await every_broker.results(core, context, await _brokers(core, context))
    replies = [reply for reply in found if isinstance(reply, RemotingCommand)]
    knows = _HAS_ANSWER[context.code]
    for reply in replies:
        if is_denial(reply) or knows(reply):
            return reply
    for failure in found:
        if isinstance(failure, RemotingError):
            raise failure
    return replies[-1]


async def _unite(core: Messaging, context: Context) -> RemotingCommand:
    """Return the lists of all brokers as one.

    A broker may refuse a group that only others know: then theirs are returned. Raises RemotingError.
    """
    replies = await every_broker.ask_each(core, context, await _brokers(core, context))
    lists = [reply for reply in replies if reply.code == ResponseCode.SUCCESS]
    denial = next((reply for reply in replies if is_denial(reply)), None)
    if denial is not None or not lists:
        return replies[0] if denial is None else denial
    name, unite = _LISTS[context.code]
    bodies = [load_object(reply.body) for reply in lists]
    united = {**bodies[0], name: unite([body.get(name) for body in bodies])}
    if context.code == _T.GET_PRODUCER_CONNECTION_LIST:
        members = core.registry.members(Role.PRODUCER, context.fields.get("producerGroup", ""))
        united[name] = with_members(united[name], members)
    return commands.success(dict(lists[0].fields), orjson.dumps(united))


async def _brokers(core: Messaging, context: Context) -> Sequence[str]:
    return await every_broker.concerned(core, context, of_topic=True)


def _joined(lists: Iterable[Any]) -> list[Any]:
    return [item for items in lists for item in items or ()]


def _distinct(lists: Iterable[Any]) -> list[str]:
    return sorted(set(_joined(lists)))


def _by_client(lists: Iterable[Any]) -> list[Any]:
    """Return one connection of each client, which has one at several brokers."""
    return list({item.get("clientId"): item for item in _joined(lists)}.values())


def _by_group(tables: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the table of all groups with the clients of each."""
    united: dict[str, list[Any]] = {}
    for table in tables:
        for group, clients in (table or {}).items():
            united.setdefault(group, []).extend(clients or ())
    return {group: _by_client((clients,)) for group, clients in united.items()}


def _succeeded(reply: RemotingCommand) -> bool:
    return reply.code == ResponseCode.SUCCESS


def _has_subscription(reply: RemotingCommand) -> bool:
    return _succeeded(reply) and load_object(reply.body).get("subscriptionData") is not None


# Names of the lists in replies, and their union over brokers.
_LISTS: Final[dict[int, tuple[str, Callable[[Iterable[Any]], Any]]]] = {
    _T.GET_PRODUCER_CONNECTION_LIST: ("connectionSet", _by_client),
    _T.GET_ALL_PRODUCER_INFO: ("data", _by_group),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: ("groupList", _distinct),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: ("topicList", _distinct),
    RequestCode.QUERY_CONSUME_TIME_SPAN: ("consumeTimeSpanSet", _joined),
}
# Clients are members at the brokers of their topics only. A member's status is the same from each of them.
_HAS_ANSWER: Final[dict[int, Callable[[RemotingCommand], bool]]] = {
    _T.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _succeeded,
    _T.QUERY_SUBSCRIPTION_BY_CONSUMER: _has_subscription,
}

# Handlers of the requests that are not merely forwarded.
TOOL_HANDLERS: Final[Mapping[int, Handling]] = {
    **dict.fromkeys(NAME_SERVER_QUERIES, _query_name_server),
    **dict.fromkeys(NAME_SERVER_CHANGES, _change_name_servers),
    **dict.fromkeys(BROKER_CHANGES, _change),
    **dict.fromkeys(BROKER_QUERIES, _query),
    **dict.fromkeys(_LISTS, _unite),
    **dict.fromkeys(_HAS_ANSWER, _find),
}

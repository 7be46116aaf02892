"""Guards of requests by which a namespaced client names a message, but not the topic that a broker takes it from.

They look at the message itself first, as `proxy.auth.stored_messages` does for users.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from proxy.core import stored_topics
from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.handlers.tools import consume_message
from proxy.core.messaging import Handling, Messaging, Serve, served
from proxy.core.principal import Principal
from proxy.core.stored_topics import also_affected, committed_topic, real_topic
from proxy.traffic_rules.grpc_resources import ResourceNames
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.name_rewriting import as_number
from proxy.traffic_rules.namespaced_channel import NamespacedChannel
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import MessageNotFound, NotPermitted
from remoting.messages import StoredMessage

_Handled = Awaitable[RemotingCommand] | None
_Guard = Callable[[Messaging, Context, Serve, NameMapping], Awaitable[RemotingCommand]]
# No broker has a message at this offset.
_NO_OFFSET = str(2**63 - 1)


class TenantMessages:
    """The guards. recalls_by_id: whether brokers recall a message by its id, of any topic."""

    def __init__(self, *, recalls_by_id: bool = True) -> None:
        self._guards: dict[int, _Guard] = {
            int(RequestCode.CONSUMER_SEND_MSG_BACK): _send_back,
            int(RequestCode.END_TRANSACTION): _end_transaction,
            int(RequestCode.VIEW_MESSAGE_BY_ID): _view,
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): _consume_directly,
        }
        if recalls_by_id:
            self._guards[int(RequestCode.RECALL_MESSAGE)] = _recall

    def wrap(self, handlers: Mapping[int, Handling]) -> dict[int, Handling]:
        """Return the core's handlers with the guards before them."""

        def guarded(guard: _Guard, handling: Handling) -> Handling:
            return lambda core, context: _serve(guard, core, partial(handling, core), context)

        return {
            **handlers,
            **{code: guarded(guard, handlers.get(code, forward)) for code, guard in self._guards.items()},
        }

    def serve_at_broker(self, core: Messaging, serve: Serve, context: Context) -> _Handled:
        """Serve a request of the embedded broker's own listener."""
        guard = self._guards.get(context.code)
        return serve(context) if guard is None else _serve(guard, core, serve, context)


def names_of(channel: Channel, principal: Principal) -> NameMapping | None:
    """Return the name mapping of a request's sender; None if it is in no namespace."""
    names = None
    if isinstance(channel, NamespacedChannel):
        names = channel.names_of(principal)
    elif isinstance(channel, GrpcChannel) and isinstance(channel.name_mapping, ResourceNames):
        names = channel.name_mapping.names
    return names if names is not None and names.namespace else None


def _serve(guard: _Guard, core: Messaging, serve: Serve, context: Context) -> _Handled:
    names = names_of(context.channel, context.principal)
    return serve(context) if names is None else guard(core, context, serve, names)


async def _serve_own(
    core: Messaging, context: Context, serve: Serve, field: str, is_own: Callable[[StoredMessage], bool]
) -> RemotingCommand:
    """Let the broker answer as for an offset without a message if the message at it is not the client's.

    Otherwise the client would learn the offsets of other tenants' messages, and of records in them.
    """
    offset = context.fields[field]
    try:
        message = await stored_topics.view(core, context, offset)
        own = is_own(message)
    except (MessageNotFound, NotPermitted):
        own = False
    if own:
        return await served(serve, context)
    context.fields[field] = _NO_OFFSET
    reply = await served(serve, context)
    if reply.remark:
        reply.header["remark"] = reply.remark.replace(_NO_OFFSET, as_number(offset))
    return reply


async def _send_back(core: Messaging, context: Context, serve: Serve, names: NameMapping) -> RemotingCommand:
    def is_own(message: StoredMessage) -> bool:
        return names.owns(message.topic, context.group) and not also_affected(message, real_topic(message))

    return await _serve_own(core, context, serve, "offset", is_own)


async def _end_transaction(core: Messaging, context: Context, serve: Serve, names: NameMapping) -> RemotingCommand:
    def is_own(half: StoredMessage) -> bool:
        topic = committed_topic(half)
        return names.owns(topic) and not also_affected(half, topic)

    return await _serve_own(core, context, serve, "commitLogOffset", is_own)


async def _view(core: Messaging, context: Context, serve: Serve, names: NameMapping) -> RemotingCommand:
    """Check that there is a message; its topic is checked when its names are rewritten."""
    if core.settings.has_embedded_broker:
        # It finds nothing else than messages.
        return await served(serve, context)
    return await _serve_own(core, context, serve, "offset", lambda message: True)


async def _consume_directly(core: Messaging, context: Context, serve: Serve, names: NameMapping) -> RemotingCommand:
    return await consume_message(core, context, serve)


async def _recall(core: Messaging, context: Context, serve: Serve, names: NameMapping) -> RemotingCommand:
    topics = await stored_topics.topics_of_delayed(core, context)
    if all(names.owns(topic) for topic in topics):
        return await served(serve, context)
    return commands.response(
        ResponseCode.NO_PERMISSION, remark="the recall handle names a message outside the client's namespace"
    )

"""Forwarding: the request goes to the broker it is for, the answer comes back as it is."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Collection

from proxy.core.context import Context
from proxy.core.membership import touch
from proxy.core.messaging import Messaging, Reply
from remoting import command as commands
from remoting import pop, properties
from remoting.batch_ack import BatchAckBody
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BrokerNotNamed, TopicNotExist
from remoting.ids import RecallHandle
from remoting.requests import SEND_FIELD_NAMES
from remoting.routes import TopicRoute

# A broker may hold a poll for as long as the client asks; a longer wait than this is a mistake, in ms.
_LONGEST_POLL = 3_600_000
# Brokers refuse properties over 32,767 bytes; ours must not be what makes them so.
_MAX_PROPERTIES = 30_000


def forward(core: Messaging, context: Context) -> Awaitable[RemotingCommand] | None:
    """Forward a request to its broker."""
    broker = context.fields.get(context.known.broker) or _conclude(context)
    if broker is not None:
        return send(core, context, broker)
    topic = context.topic
    route = core.backend.cached_route(topic) if topic else None
    if route is not None:
        return send(core, context, only(core, context, route.brokers))
    return _forward_cold(core, context, topic)


def send(core: Messaging, context: Context, broker: str) -> Reply | None:
    """Send the request to this broker."""
    spec, command = context.known, context.command
    if broker not in context.channel.session.known_brokers:
        # Some clients ask for routes over one connection and send over another.
        touch(core, context.channel, (broker,))
    adapt = _ADAPTATIONS.get(context.code)
    if adapt is not None:
        adapt(core, context)
    context.broker, context.sent = broker, time.monotonic()
    if command.is_oneway:
        core.backend.oneway(broker, spec, command, context.channel)
        return None
    timeout = core.settings.cluster.request_timeout
    if spec.poll is not None:
        timeout += min(max(command.integer(spec.poll), 0), _LONGEST_POLL) / 1000
    return core.backend.request(broker, spec, command, timeout, context.channel)


# Requests that name no broker: of clients before Java 4.9.5, of the Go and C++ clients.


async def _forward_cold(core: Messaging, context: Context, topic: str | None) -> RemotingCommand:
    route: TopicRoute | None = None
    if topic:
        # A topic that is not there may be about to be created by this very send; and where it is
        # not, its broker says so.
        with contextlib.suppress(TopicNotExist):
            route = await core.backend.route(topic)
    brokers = await core.backend.brokers() if route is None else route.brokers
    reply = send(core, context, only(core, context, brokers))
    return _NOTHING if reply is None else await reply


# Stands for the answer of a oneway request that had to wait for its route; nobody sees it.
_NOTHING = commands.success()


def _conclude(context: Context) -> str | None:
    """The broker, from where the request came in or from a handle in it."""
    if context.channel.peer.broker is not None:
        return context.channel.peer.broker
    find = _HANDLES.get(context.code)
    return None if find is None else find(context)


def only(core: Messaging, context: Context, brokers: Collection[str]) -> str:
    """The broker that can be meant: the only one which has no listener of its own. Raises BrokerNotNamed."""
    candidates = [broker for broker in brokers if broker not in core.listener_routes.dedicated]
    where = ", ".join(sorted(brokers)) or "no broker"
    if len(candidates) == 1:
        return candidates[0]
    raise BrokerNotNamed(
        f"{context.known.name} names no broker, topic {context.topic} is on {where}: "
        "use a client that names it (Java 4.9.5 or newer), or give each broker a listener of its own (listen.broker)"
    )


def _extra_info(context: Context) -> str | None:
    text = context.fields.get("extraInfo")
    return pop.ExtraInfo.parse(text).broker_name if text else None


def _batch_ack(context: Context) -> str | None:
    return BatchAckBody.decode(context.command.body).broker_name


def _recall_handle(context: Context) -> str | None:
    return RecallHandle.parse(context.fields.get("recallHandle", "")).broker_name


_HANDLES: dict[int, Callable[[Context], str | None]] = {
    RequestCode.ACK_MESSAGE: _extra_info,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _extra_info,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.RECALL_MESSAGE: _recall_handle,
}


# What has to be changed in a request because it comes through a proxy.


def _broker_clock(_: Messaging, context: Context) -> None:
    """A broker compares bornTime with its own clock and gives up early; 0 makes it use only its own."""
    if "Signature" not in context.fields:
        context.fields["bornTime"] = "0"


def _born_host(core: Messaging, context: Context) -> None:
    """Note where the producer is: the broker sees only us. A signed request must stay as it is."""
    if not core.settings.born_host or "Signature" in context.fields:
        return
    name = SEND_FIELD_NAMES[context.code].properties
    known = context.fields.get(name, "")
    if properties.BORN_HOST not in known and len(known) < _MAX_PROPERTIES:
        context.fields[name] = properties.append(known, properties.BORN_HOST, context.channel.session.address)


_ADAPTATIONS: dict[int, Callable[[Messaging, Context], None]] = {
    RequestCode.POP_MESSAGE: _broker_clock,
    RequestCode.POP_LITE_MESSAGE: _broker_clock,
    RequestCode.NOTIFICATION: _broker_clock,
    RequestCode.SEND_MESSAGE: _born_host,
    RequestCode.SEND_MESSAGE_V2: _born_host,
}

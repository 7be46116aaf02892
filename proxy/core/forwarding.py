"""Forwarding of requests to their brokers; replies are returned unchanged."""

import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from time import monotonic
from typing import Final

from proxy.core.adaptations import ADAPTATIONS
from proxy.core.context import Context
from proxy.core.creation_quota import CreationQuota
from proxy.core.empty_poll import unread_poll
from proxy.core.membership import touch
from proxy.core.messaging import Messaging, served
from proxy.core.poll_turns import PollTurns
from proxy.core.upstream_shares import UpstreamShares, Window
from remoting import command as commands
from remoting import pop
from remoting.batch_ack import BatchAckBody
from remoting.codes import ONEWAY_FLAG, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BrokerNotNamed, ClientGone, Overloaded, TopicNotExist
from remoting.ids import RecallHandle
from remoting.outcomes import Reply
from remoting.routes import TopicRoute

# Upper bound of a long poll's duration; official clients request at most 30 s.
_MAX_POLL_MS: Final = 120_000


def forward(core: Messaging, context: Context) -> Awaitable[RemotingCommand] | None:
    """Forward a request to the broker that it names or implies; None for a oneway request."""
    if core.creations is not None and not core.creations.admits(context):
        return _forward_checked(core, core.creations, context)
    spec = context.spec
    # The check `well_formed` has found it.
    assert spec is not None
    broker = context.fields.get(spec.broker) or _implied_broker(context)
    if broker is not None:
        return send(core, context, broker)
    topic = context.topic
    route = core.backend.cached_route(topic) if topic else None
    if route is not None:
        return send(core, context, single_broker(core, context, route.brokers))
    return _forward_cold(core, context, topic)


def send(core: Messaging, context: Context, broker: str) -> Reply | None:
    """Send the request to this broker, after any previous one; None for a oneway request.

    Raises ClientGone if the request has been cancelled since it arrived.
    """
    spec, command = context.spec, context.command
    assert spec is not None
    if context.ended:
        raise _cancelled()
    if broker not in context.channel.session.membership.known_brokers:
        # Some clients fetch routes over one connection and send over another.
        touch(core, context.channel, (broker,))
    adapt = ADAPTATIONS.get(context.code)
    if adapt is not None:
        adapt(core, context)
    now = monotonic()
    if context.window is not None:
        context.leave_window(now, answered=False)
    context.broker, context.sent = broker, now
    oneway = command.flag & ONEWAY_FLAG
    timeout = core.settings.cluster.request_timeout
    if spec.poll is not None:
        timeout += limit_poll(context, spec.poll) / 1000
        if command.body and not context.signed:
            # Brokers do not read it, and would keep it until the poll ends, on a connection that other clients share.
            command.body = b""
        turns = None if core.poll_turns is None else core.poll_turns.of(broker, context.channel.session)
        if turns is not None:
            if not turns.enter(now):
                return turns.wait(context.channel, partial(_send_waiting_poll, core, context, turns, timeout))
            context.window = turns
    elif core.shares is not None:
        window = context.channel.session.windows.get(broker) or _join(core.shares, core, context, broker)
        if window is not None:
            # The end of a oneway request is unknown: it only stays behind earlier requests.
            if window.waiting if oneway else not window.enter(now):
                return window.wait(partial(_send_waiting, core, context, window, timeout))
            if not oneway:
                context.window = window
    if oneway:
        core.backend.oneway(broker, spec, command, context.channel)
        return None
    return core.backend.request(broker, spec, command, timeout, context.channel)


async def ask(core: Messaging, context: Context, broker: str) -> RemotingCommand:
    """Send the request to this broker; return its reply, or a success that nothing sends for a oneway request."""
    reply = send(core, context, broker)
    return commands.success() if reply is None else await reply


def _join(shares: UpstreamShares, core: Messaging, context: Context, broker: str) -> Window | None:
    """Return the window of the client's source address at a broker; None for an unknown broker."""
    if not core.backend.has_broker(broker):
        return None
    channel = context.channel
    window = channel.session.windows[broker] = shares.of(channel.peer.address, broker)
    return window


def _send_waiting_poll(
    core: Messaging, context: Context, turns: PollTurns, timeout: float, now: float
) -> Reply | RemotingCommand | None:
    """Send a poll that has waited; None for a oneway request. Raises ClientGone, Overloaded.

    For a client that does not read, return a reply without messages.
    """
    if context.channel.unread_bytes > core.settings.limits.unread:
        return unread_poll(context.known_spec, context.fields)
    return _send_waiting(core, context, turns, timeout, now)


def _send_waiting(
    core: Messaging, context: Context, window: Window | PollTurns, timeout: float, now: float
) -> Reply | None:
    """Send a request that has waited; None for a oneway request. Raises ClientGone, Overloaded."""
    command, broker = context.command, context.broker
    assert broker is not None
    if context.ended:
        raise _cancelled()
    if context.channel.closed:
        raise ClientGone("the client has disconnected before its request was sent")
    if now - context.started > timeout:
        host = context.channel.peer.address.host
        raise Overloaded(f"too many requests of {host} are in flight at {broker}; try again later")
    context.sent = now
    if command.is_oneway:
        core.backend.oneway(broker, context.known_spec, command, context.channel)
        return None
    context.window = window
    return core.backend.request(broker, context.known_spec, command, timeout, context.channel)


def _cancelled() -> ClientGone:
    return ClientGone("the client has cancelled the request before it was sent")


def limit_poll(context: Context, field: str) -> int:
    """Return the duration of a long poll in ms, and limit it in the request's field."""
    wait = max(context.command.integer(field), 0)
    if wait > _MAX_POLL_MS:
        wait = _MAX_POLL_MS
        if not context.signed:
            context.fields[field] = str(wait)
    return wait


# Requests that name no broker: from Java clients before 4.9.5, and from the Go and C++ clients.


async def _forward_cold(core: Messaging, context: Context, topic: str | None) -> RemotingCommand:
    route: TopicRoute | None = None
    if topic:
        # This send may create a missing topic; if not, the broker returns the error.
        with contextlib.suppress(TopicNotExist):
            route = await core.backend.route(topic)
    brokers = await core.backend.brokers() if route is None else route.brokers
    return await ask(core, context, single_broker(core, context, brokers))


async def _forward_checked(core: Messaging, creations: CreationQuota, context: Context) -> RemotingCommand:
    """Forward a request that may create a topic or group if that exists. Raises TopicNotExist, GroupNotExist."""
    await creations.check(context)
    return await served(partial(forward, core), context)


def _implied_broker(context: Context) -> str | None:
    """Return the broker of the listener, or of a handle in the request."""
    if context.channel.peer.broker is not None:
        return context.channel.peer.broker
    find = _BROKER_OF_HANDLE.get(context.code)
    return None if find is None else find(context)


async def broker_of(core: Messaging, context: Context, topic: str | None) -> str:
    """Return the broker that a request names, else that of its listener, else the only one: of the topic, if any.

    Raises BrokerNotNamed, RemotingError.
    """
    broker = context.fields.get("bname") or context.channel.peer.broker
    if broker:
        return broker
    brokers = (await core.backend.route(topic)).brokers if topic else await core.backend.brokers()
    return single_broker(core, context, brokers)


def single_broker(core: Messaging, context: Context, brokers: Collection[str]) -> str:
    """Return the only broker without a dedicated listener. Raises BrokerNotNamed if there are none or several."""
    candidates = [broker for broker in brokers if broker not in core.listener_routes.dedicated]
    where = ", ".join(sorted(brokers)) or "no broker"
    if len(candidates) == 1:
        return candidates[0]
    raise BrokerNotNamed(
        f"{context.known_spec.name} names no broker, topic {context.topic} is on {where}: "
        "use a client that names it (Java 4.9.5 or newer), or give each broker a listener of its own (listen.broker)"
    )


def _extra_info(context: Context) -> str | None:
    text = context.fields.get("extraInfo")
    return pop.ExtraInfo.parse(text).broker_name if text else None


def _batch_ack(context: Context) -> str | None:
    return BatchAckBody.decode(context.command.body).broker_name


def _recall_handle(context: Context) -> str | None:
    return RecallHandle.parse(context.fields.get("recallHandle", "")).broker_name


_BROKER_OF_HANDLE: Final[dict[int, Callable[[Context], str | None]]] = {
    RequestCode.ACK_MESSAGE: _extra_info,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _extra_info,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.RECALL_MESSAGE: _recall_handle,
}

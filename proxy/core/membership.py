"""HEART_BEAT, UNREGISTER_CLIENT and the end of a connection: who is in which group.

However a client leaves (it unregisters, its connection closes or breaks, its heartbeats stop), the
same happens, at once: it leaves its groups in the registry, every broker is told, and then the
remaining members of each group are told that it changed.
"""

import asyncio
import math
from collections.abc import Collection, Iterable

from proxy.core import heartbeat as heartbeats
from proxy.core.channel import Channel
from proxy.core.client_registry import ConsumerGroupChange, Groups, LeaveCause, Member, Role
from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.names import RETRY_PREFIX
from remoting.routes import TopicRoute
from remoting.tasks import spawn_quietly

# Clients send one heartbeat per broker of their route; behind a proxy these are all the same one.
# Within this time, in seconds, an equal one has nothing new to say.
_SAME = 5.0


async def heartbeat(core: Messaging, context: Context) -> RemotingCommand:
    """Note who the client is and enroll it at its brokers; they know it when this is answered.

    The answer does not offer heartbeats without subscriptions (HEART_BEAT V2): a broker that was
    restarted between two of them would not know what to ask for, as the client sees only us.
    """
    channel, command, now = context.channel, context.command, context.started
    session = channel.session
    last = session.heartbeat
    repeated = last is not None and last.body == command.body and now - session.heartbeat_at < _SAME
    if repeated and session.known_brokers <= session.registered_brokers:
        return commands.success()
    beat = heartbeats.parse(command.body)
    if channel.closed:
        # It ended before this was looked at; nobody would end the membership.
        return commands.success()
    changes: list[ConsumerGroupChange] = []
    if not repeated:
        session.client_id = beat.client_id
        session.language, session.version = command.language, command.version
        session.heartbeat, session.heartbeat_at = command, now
        member = Member(channel, beat.client_id, channel, str(channel.peer.address), command.language, command.version)
        changes = core.registry.heartbeat(member, beat.producers, beat.consumers, now)
    if channel.peer.broker is not None:
        brokers: set[str] = {channel.peer.broker}
    else:
        brokers = session.known_brokers | await _subscribed(core, beat.topics)
    known = core.registry.member(channel)
    if known is None:
        # It left, or its connection ended, while the routes were loaded.
        return commands.success()
    news = brokers - session.registered_brokers if repeated else brokers
    session.known_brokers |= brokers
    session.registered_brokers |= news
    # As the groups are now: it may have left one of them meanwhile.
    await _enroll(core, channel, known.groups, news)
    core.changed(changes)
    return commands.success()


def touch(core: Messaging, channel: Channel, brokers: Iterable[str]) -> None:
    """The client has to do with these brokers: those that do not know it are told now, not at its next heartbeat."""
    session = channel.session
    if channel.peer.broker is not None:
        return
    session.known_brokers.update(broker for broker in brokers if core.backend.has_broker(broker))
    news = session.known_brokers - session.registered_brokers
    member = core.registry.member(channel)
    if news and member is not None and session.heartbeat is not None:
        session.registered_brokers |= news
        spawn_quietly(_enroll(core, channel, member.groups, news))


async def _enroll(core: Messaging, channel: Channel, groups: Groups, brokers: Collection[str]) -> None:
    """Make the client a member at brokers, in those of its groups that nobody else stands for there."""
    if channel.producers_represented:
        groups = Groups(consumers=groups.consumers)
    if groups or not channel.producers_represented:
        await core.backend.register(channel, groups, brokers)


async def unregister(core: Messaging, context: Context) -> RemotingCommand:
    """A client leaves a group in good order; the brokers are told in its own words."""
    fields = context.fields
    groups = Groups(
        frozenset(filter(None, (fields.get("producerGroup"),))), frozenset(filter(None, (fields.get("consumerGroup"),)))
    )
    channel = context.channel
    await leave(core, channel, groups, context.command.copy(), LeaveCause(channel.leave_cause))
    return commands.success()


async def leave(
    core: Messaging,
    channel: Channel,
    groups: Groups | None = None,
    unregister_command: RemotingCommand | None = None,
    cause: LeaveCause = LeaveCause.CLOSED,
) -> None:
    """A client leaves these of its groups (None: all)."""
    member = core.registry.member(channel)
    if member is None:
        return
    session = channel.session
    leaving = member.groups if groups is None else groups
    # Should it come back, an equal heartbeat is news again.
    session.heartbeat_at = -math.inf
    changes = core.registry.unregister(channel, leaving, cause)
    if session.heartbeat is not None and core.registry.member(channel) is not None:
        # What is told to brokers from now on must not name the group any more.
        session.heartbeat = session.heartbeat.copy()
        session.heartbeat.body = heartbeats.without(session.heartbeat.body, leaving)
    # Only when the brokers know may anybody be told to look at the group again.
    await core.backend.unregister(channel, leaving, unregister_command)
    core.changed(changes)


def expire(core: Messaging, now: float) -> None:
    """Make those leave of whom no heartbeat has come for too long."""
    for member, groups in core.registry.expired(now):
        if member.channel is None:
            core.changed(core.registry.unregister(member.key, groups, LeaveCause.EXPIRED))
        else:
            spawn_quietly(leave(core, member.channel, groups, cause=LeaveCause.EXPIRED))


def notify(core: Messaging, change: ConsumerGroupChange) -> None:
    """Tell the group's members here of a change behind another proxy; of all others the brokers tell them."""
    if change.member.channel is not None or change.consumer_data.broadcasting:
        return
    for member in core.registry.members(Role.CONSUMER, change.group):
        if member.channel is not None:
            notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": change.group})
            member.channel.oneway(notice)


async def _subscribed(core: Messaging, topics: Collection[str]) -> set[str]:
    """Brokers of the subscribed topics; a topic whose route cannot be had now has none."""
    # A retry topic is where the group's topics are, and comes into being only with this heartbeat.
    wanted = [topic for topic in topics if not topic.startswith(RETRY_PREFIX)]
    found = [core.backend.cached_route(topic) for topic in wanted]
    cold = [core.backend.route(topic) for topic, known in zip(wanted, found, strict=True) if known is None]
    loaded = await asyncio.gather(*cold, return_exceptions=True) if cold else []
    routes = [*found, *loaded]
    return {broker for route in routes if isinstance(route, TopicRoute) for broker in route.brokers}

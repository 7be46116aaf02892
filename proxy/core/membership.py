"""Group membership of clients: HEART_BEAT, UNREGISTER_CLIENT, closed connections and expiry.

However a client leaves (it unregisters, its connection closes, its heartbeats stop), the same steps follow at once: it
is removed from its groups in the registry, unregistered at every broker, and then the remaining members of each group
are notified of the change.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable

from proxy.core import heartbeat as heartbeats
from proxy.core.channel import Channel
from proxy.core.client_registry import ConsumerGroupChange, Groups, LeaveCause, Member, Role
from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, Overloaded, RemotingError, ServiceUnavailable
from remoting.names import RETRY_PREFIX
from remoting.routes import TopicRoute
from remoting.tasks import isolated, spawn_quietly

# Clients send one heartbeat per broker of their routes; through a proxy these are repetitions of one heartbeat. An
# equal heartbeat within this time is answered without further work.
_REPETITION_SECONDS = 5.0


async def heartbeat(core: Messaging, context: Context) -> RemotingCommand:
    """HEART_BEAT: record the client's groups and register it at its brokers before answering.

    If brokers alone decide about the request, the client becomes a member only when one has accepted it: Gantry signs
    requests for members, and shows them to others. Raises NotPermitted if the brokers deny it, which also ends its
    membership, ServiceUnavailable if none answers, GroupNotExist if it would create too many groups, and Overloaded if
    it needs too many connections to brokers, which ends its membership in the groups that are new.

    The response does not offer heartbeats without subscriptions (HEART_BEAT V2): a broker that restarts between two of
    them would miss the subscriptions, and its client does not notice the restart behind a proxy.
    """
    channel, command, now = context.channel, context.command, context.started
    state = channel.session.membership
    last, known = state.heartbeat, state.heartbeat_accepted
    # Whether brokers, or Gantry, have accepted an equal heartbeat before.
    same = known and last is not None and last.body == command.body
    repeated = same and now - state.heartbeat_at < _REPETITION_SECONDS
    if repeated and state.known_brokers <= state.registered_brokers:
        return commands.success()
    beat = heartbeats.parse(command.body)
    if core.creations is not None:
        await core.creations.check_groups(channel, beat.consumers)
    if channel.closed:
        # Its connection closed before this heartbeat was handled: nothing would end the membership later.
        return commands.success()
    # Brokers that have accepted the same heartbeat may be away; their denial ends the membership.
    accepted = same or not core.signing.left_to_brokers(channel, command)
    former = core.registry.member(channel)
    present = Groups() if former is None else former.groups
    changes = [] if repeated else _record(core, context, beat, present, accepted)
    if channel.peer.broker is not None:
        brokers: set[str] = {channel.peer.broker}
    else:
        brokers = state.known_brokers | await _subscribed(core, beat.topics)
    if not accepted:
        await _join_if_accepted(core, context, beat, brokers or await _any_broker(core), last if known else None)
        return commands.success()
    current = core.registry.member(channel)
    if current is None:
        # It left, or its connection closed, while the routes were loaded.
        return commands.success()
    targets = brokers - state.registered_brokers if repeated else brokers
    state.known_brokers |= brokers
    state.registered_brokers |= targets
    # With its present groups: it may have left one of them meanwhile.
    try:
        await _register(core, channel, current.groups, targets)
    except NotPermitted:
        await leave(core, channel)
        raise
    except Overloaded:
        await leave(core, channel, beat.groups - present)
        # It stays in its former groups, with their changed subscriptions.
        core.changed([change for change in changes if change.group in present.consumers])
        raise
    core.changed(changes)
    return commands.success()


def _record(
    core: Messaging, context: Context, beat: heartbeats.Heartbeat, present: Groups, accepted: bool
) -> list[ConsumerGroupChange]:
    """Record a heartbeat that is no repetition; return the changes of consumer groups, none if it is not accepted.

    present: the groups that the client is in, and stays in if the heartbeat no longer names them. Raises
    BodyError if these and the named ones are too many.
    """
    channel, command = context.channel, context.command
    session, state = channel.session, channel.session.membership
    groups = beat.groups | present
    heartbeats.check_groups(len(groups.producers) + len(groups.consumers))
    session.client_id = beat.client_id
    session.language, session.version = command.language, command.version
    state.record(command, context.started, accepted)
    if accepted:
        return _join(core, context, beat)
    state.joining |= beat.groups
    return []


def _join(core: Messaging, context: Context, beat: heartbeats.Heartbeat) -> list[ConsumerGroupChange]:
    """Record an accepted heartbeat; return the changes of consumer groups."""
    channel, command = context.channel, context.command
    channel.session.membership.accept()
    member = Member(channel, beat.client_id, channel, str(channel.peer.address), command.language, command.version)
    return core.registry.heartbeat(member, beat.producers, beat.consumers, context.started)


async def _join_if_accepted(
    core: Messaging,
    context: Context,
    beat: heartbeats.Heartbeat,
    brokers: Collection[str],
    last: RemotingCommand | None,
) -> None:
    """Ask brokers about a heartbeat, and record it if one accepts it. last: the heartbeat that they accepted before.

    Raises NotPermitted if brokers deny it and none accepts it, ServiceUnavailable without a reply.
    """
    channel, state = context.channel, context.channel.session.membership
    if state.without_heartbeat and not channel.closed:
        raise ServiceUnavailable("the client has left its groups meanwhile")
    if state.heartbeat is not context.command:
        # A later heartbeat asks for the groups of both.
        return
    member = core.registry.member(channel)
    present = Groups() if member is None else member.groups
    state.known_brokers |= set(brokers)
    state.registered_brokers |= set(brokers)
    try:
        accepted = await _register(core, channel, present | state.joining, brokers)
    except NotPermitted:
        await leave(core, channel)
        raise
    except Overloaded:
        joining = state.joining
        if state.heartbeat is context.command and not channel.closed:
            state.fall_back(last)
            await core.backend.unregister(channel, joining - present)
        raise
    current, joining = state.heartbeat is context.command and not channel.closed, state.joining
    if current and accepted is context.command:
        changes = _join(core, context, beat)
        former = joining - beat.groups - present
        if former:
            await core.backend.unregister(channel, former)
        # Requests may have used further brokers meanwhile.
        touch(core, channel, ())
        core.changed(changes)
        return
    if current:
        state.fall_back(last)
        await core.backend.unregister(channel, joining - present)
    if current or (state.without_heartbeat and not channel.closed):
        raise ServiceUnavailable("no broker has accepted the heartbeat; try again later")


async def _any_broker(core: Messaging) -> set[str]:
    """Return a broker that is likely to answer; none if none is known."""
    try:
        brokers = await core.backend.brokers()
    except RemotingError:
        return set()
    return set(sorted(brokers, key=lambda name: (name in core.backend.unresponsive_brokers, name))[:1])


def touch(core: Messaging, channel: Channel, brokers: Iterable[str]) -> None:
    """Register the client in the background at those of these brokers where it is not registered yet.

    Without this, a client would only be registered there with its next heartbeat.
    """
    state = channel.session.membership
    if channel.peer.broker is not None:
        return
    state.known_brokers.update(broker for broker in brokers if core.backend.has_broker(broker))
    targets = state.known_brokers - state.registered_brokers
    member = core.registry.member(channel)
    if targets and member is not None and state.heartbeat is not None:
        state.registered_brokers |= targets
        spawn_quietly(_register_in_background(core, channel, targets))


async def _register_in_background(core: Messaging, channel: Channel, brokers: Collection[str]) -> None:
    member = core.registry.member(channel)
    # It may have left since.
    if member is not None:
        # Its next heartbeat is answered with the brokers' denial, or that the connections are over their bound.
        with contextlib.suppress(NotPermitted, Overloaded):
            await _register(core, channel, member.groups, brokers)


async def _register(
    core: Messaging, channel: Channel, groups: Groups, brokers: Collection[str]
) -> RemotingCommand | None:
    """Register the client at brokers, without its producer groups if another channel registers those.

    Returns the heartbeat if a broker has accepted it.
    """
    if channel.producers_represented:
        groups = Groups(consumers=groups.consumers)
    if groups or not channel.producers_represented:
        return await core.backend.register(channel, groups, brokers)
    return None


async def unregister(core: Messaging, context: Context) -> RemotingCommand:
    """UNREGISTER_CLIENT: remove the client from its groups among those named, and send its request on to the brokers.

    Brokers know several clients by one connection. A request with a group or an id of another client would remove that
    one; the brokers get Gantry's requests for the client's own groups instead.
    """
    fields, channel = context.fields, context.channel
    present = _present(core, channel)
    if not present:
        return commands.success()
    named = Groups(
        frozenset(filter(None, (fields.get("producerGroup"),))), frozenset(filter(None, (fields.get("consumerGroup"),)))
    )
    others = named - present
    own = named - others
    if own:
        honest = not others and fields.get("clientID") == channel.session.client_id
        command = context.command.copy() if honest else None
        await leave(core, channel, own, command, LeaveCause(channel.leave_cause))
    return commands.success()


async def leave(
    core: Messaging,
    channel: Channel,
    groups: Groups | None = None,
    unregister_command: RemotingCommand | None = None,
    cause: LeaveCause = LeaveCause.CLOSED,
) -> None:
    """Remove a client from these of its groups (None: all), here and at the brokers, and notify the groups."""
    present = _present(core, channel)
    leaving = present if groups is None else groups
    if not present or not leaving:
        return
    changes = core.registry.unregister(channel, leaving, cause)
    changed = channel.session.membership.drop(leaving, stays=core.registry.member(channel) is not None)
    if changed is not None and core.signing.signer is not None:
        core.signing.signer.sign_changed(changed)
    # The group's members query the brokers when they are notified, so the brokers come first.
    if channel.producers_represented:
        leaving = Groups(consumers=leaving.consumers)
    if leaving:
        await core.backend.unregister(channel, leaving, unregister_command)
    core.changed(changes)


def _present(core: Messaging, channel: Channel) -> Groups:
    """Return the client's groups, with those that brokers have not accepted yet."""
    member, joining = core.registry.member(channel), channel.session.membership.joining
    return joining if member is None else member.groups | joining


async def expire(core: Messaging, now: float) -> None:
    """Remove members from groups whose heartbeats have expired; `now` in seconds.

    A portion of the members in each iteration of the event loop, so that other clients are served between.
    """
    for members in core.registry.portions():
        for member, groups in core.registry.expired(now, members):
            if member.channel is None:
                core.changed(core.registry.unregister(member.key, groups, LeaveCause.EXPIRED))
            else:
                spawn_quietly(leave(core, member.channel, groups, cause=LeaveCause.EXPIRED))
        await asyncio.sleep(0)


def notify(core: Messaging, change: ConsumerGroupChange) -> None:
    """Notify the group's local members of a change behind another proxy; brokers notify them of all others."""
    if change.member.channel is not None or change.consumer_data.broadcasting:
        return
    for member in core.registry.members(Role.CONSUMER, change.group):
        if member.channel is not None:
            notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": change.group})
            isolated(member.channel.oneway, notice)


async def _subscribed(core: Messaging, topics: Collection[str]) -> set[str]:
    """Return the brokers of the subscribed topics; topics whose route cannot be loaded are left out."""
    # A retry topic has its group's brokers, and the brokers create it with this heartbeat.
    names = [topic for topic in topics if not topic.startswith(RETRY_PREFIX)]
    cached = [core.backend.cached_route(topic) for topic in names]
    missing = [core.backend.route(topic) for topic, route in zip(names, cached, strict=True) if route is None]
    loaded = await asyncio.gather(*missing, return_exceptions=True) if missing else []
    routes = [*cached, *loaded]
    return {broker for route in routes if isinstance(route, TopicRoute) for broker in route.brokers}

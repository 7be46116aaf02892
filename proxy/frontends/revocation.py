"""Revocation: ends polls, memberships and telemetry streams without a permission or with a former credential."""

import logging
import time
from collections.abc import Callable, Iterable

from grpc_gateway.clients.client import Client
from grpc_gateway.permissions import consume_permissions, member_permission, send_permission, settings_permissions
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.auth.authority import Authority
from proxy.auth.resources import permissions
from proxy.core.channel import Channel
from proxy.core.client_registry import Member
from proxy.core.context import Context
from proxy.core.long_poll import end_poll
from proxy.core.messaging import Messaging
from proxy.core.principal import OWN, Principal
from proxy.core.remoting_channel import BrokerChannel, RemotingChannel
from proxy.frontends.grpc_frontend import GrpcFrontend
from remoting.close_cause import CloseCause
from remoting.command import RemotingCommand
from remoting.errors import CredentialExpired, NotPermitted, RemotingError
from remoting.permissions import Permission
from remoting.requests import REQUESTS, RequestSpec

_log = logging.getLogger("gantry.auth")

_REVOKED = "the permission was revoked"
_WITHDRAWN = "the credential was revoked"
_EXPIRED = "the credential has expired"

# Ends the memberships for which its argument returns False, and returns their number.
EndMemberships = Callable[[Callable[[Channel, str], bool]], int]


class Revocation:
    """Ends polls, memberships and clients that changed users, credentials and policies, or expired tokens, no longer
    permit.

    channels: returns the open remoting connections. end_at_broker: of the embedded broker, if there is one. clock:
    seconds since 1970.
    """

    def __init__(
        self,
        core: Messaging,
        authority: Authority,
        channels: Callable[[], Iterable[RemotingChannel]],
        grpc: GrpcFrontend,
        end_at_broker: EndMemberships | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._core = core
        self._authority = authority
        self._channels = channels
        self._end_at_broker = end_at_broker
        self._clients = grpc.clients
        self._streams = grpc.service.telemetry.streams
        self._lifecycle = grpc.service.client_lifecycle
        self.clock = clock

    def apply(self) -> None:
        """End polls, memberships and clients that users and policies no longer permit."""
        polls = self._end_polls()
        connections = self._close_members()
        memberships = self._end_memberships_at_broker()
        clients = self._remove_clients()
        if polls or connections or memberships or clients:
            _log.info(
                "revoked permissions ended %d polls, %d remoting connections, %d memberships at the embedded broker"
                " and %d gRPC clients",
                polls,
                connections,
                memberships,
                clients,
            )

    async def expire(self) -> bool:
        """End the activity of expired tokens. Returns False: users and policies have not changed."""
        now = self.clock()
        polls = 0
        for context in list(self._core.in_flight):
            if context.principal.expires_at <= now and context.spec is not None and context.spec.poll is not None:
                polls += _end_poll(context, CredentialExpired(_EXPIRED))
        clients = {client for client in self._clients if client.principal.expires_at <= now}
        streams = [
            stream
            for stream, client in self._streams.items()
            if client in clients or stream.principal.expires_at <= now
        ]
        for stream in streams:
            stream.fail(Code.UNAUTHORIZED, _EXPIRED)
        for client in clients:
            self._clients.remove(client, "expired")
        if polls or clients or streams:
            _log.info(
                "expired tokens ended %d polls, %d gRPC clients and %d telemetry streams",
                polls,
                len(clients),
                len(streams),
            )
        return False

    def _end_polls(self) -> int:
        ended = 0
        for context in list(self._core.in_flight):
            spec, channel = context.spec, context.channel
            if spec is None or spec.poll is None or self._core.signing.left_to_brokers(channel, context.command):
                continue
            if self._may(channel, context.principal, context.command, spec):
                continue
            ended += _end_poll(context, NotPermitted(_REVOKED))
        return ended

    def _close_members(self) -> int:
        """Close the connections of members that may no longer send their last heartbeat, or be in all their groups.

        Brokers judge the next heartbeat of a member about which they alone decide: Gantry need not know its user.
        """
        closed = 0
        for channel in list(self._channels()):
            beat, member = channel.session.membership.heartbeat, self._core.registry.member(channel)
            if beat is None or member is None or self._core.signing.left_to_brokers(channel, beat):
                continue
            may_send = self._may(channel, channel.principal, beat, REQUESTS[beat.code])
            if not may_send or not self._may_stay(member, channel):
                closed += 1
                channel.close(CloseCause.REVOKED)
        return closed

    def _end_memberships_at_broker(self) -> int:
        """End memberships of the embedded broker's own listener, whose connections may be those of other replicas."""
        if self._end_at_broker is None:
            return 0
        channels: dict[Channel, RemotingChannel] = {
            channel: channel for channel in self._channels() if isinstance(channel, BrokerChannel)
        }

        def may_stay(channel: Channel, group: str) -> bool:
            known = channels.get(channel)
            return known is None or self._may_be_in(known, group)

        return self._end_at_broker(may_stay) if channels else 0

    def _may_stay(self, member: Member, channel: RemotingChannel) -> bool:
        """Return whether a member may be in all its groups: its last heartbeat need not name those of former ones.

        A producer group needs no permission.
        """
        return all(self._may_be_in(channel, group) for group in member.consumers)

    def _may_be_in(self, channel: RemotingChannel, group: str) -> bool:
        """Return whether a sender of the connection's heartbeats may be in a consumer group."""
        # Each of them has sent a heartbeat.
        senders, host = channel.session.heartbeat_users.values() or (channel.principal,), channel.peer.address.host
        return any(self._has(sender, (member_permission(group),), host) for sender in senders)

    def _remove_clients(self) -> int:
        removed = set()
        for client in self._clients:
            if not self._has(client.principal, _needed(client), client.peer.address.host):
                removed.add(client)
            else:
                self._forget_topics(client)
        # Also the streams on which clients have not sent their settings. A client may have a newer credential than that
        # with which it has opened its stream.
        for stream, client in list(self._streams.items()):
            host = client.peer.address.host
            if not all(self._authority.is_valid(sender, host) for sender in (stream.principal, client.principal)):
                stream.fail(Code.UNAUTHORIZED, _WITHDRAWN)
            elif client in removed:
                stream.fail(Code.FORBIDDEN, _REVOKED)
        for client in removed:
            self._clients.remove(client)
        return len(removed)

    def _forget_topics(self, client: Client) -> None:
        """Forget topics of a client's calls that are not permitted any more: it would get their transaction checks."""
        host = client.peer.address.host
        sent = [name for name in client.topics if not self._has(client.principal, (send_permission(name),), host)]
        received = [
            name
            for name in client.subscriptions
            if not self._has(client.principal, consume_permissions(name, "")[:1], host)
        ]
        if sent or received:
            client.forget(sent, received)
            self._lifecycle.settings_changed(client)

    def _may(self, channel: Channel, principal: Principal, command: RemotingCommand, spec: RequestSpec) -> bool:
        try:
            return self._has(principal, permissions(spec, command.fields, command.body), channel.peer.address.host)
        except RemotingError:
            return False

    def _has(self, principal: Principal, needed: Iterable[Permission], host: str) -> bool:
        if principal is OWN:
            return True
        return (
            self._authority.is_valid(principal, host) and self._authority.first_denied(principal, needed, host) is None
        )


def _needed(client: Client) -> list[Permission]:
    """Return the permissions that a client needs for its settings and for the group of its registration.

    A client without settings names its group in Heartbeat.
    """
    needed = [] if client.settings is None else list(settings_permissions(client.settings))
    registration = client.registration
    if registration is not None and registration.group:
        needed.append(member_permission(registration.group))
    return needed


def _end_poll(context: Context, error: RemotingError) -> int:
    """Fail the reply to a long poll; return the number of replies."""
    ended = 0
    for reply, poll in list(context.channel.session.polls.items()):
        if poll is context:
            ended += end_poll(reply, error)
    return ended

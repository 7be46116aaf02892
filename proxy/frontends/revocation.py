"""Revocation: ends polls, memberships and telemetry streams of senders that lost their permissions."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.permissions import settings_permissions
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.auth.authority import Authority
from proxy.auth.resources import permissions
from proxy.core.channel import Channel
from proxy.core.messaging import Messaging
from proxy.core.principal import OWN, Principal
from proxy.core.remoting_channel import RemotingChannel
from remoting.close_cause import CloseCause
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, RemotingError
from remoting.permissions import Permission
from remoting.requests import REQUESTS, RequestSpec

_log = logging.getLogger("gantry.auth")

_REVOKED = "the permission was revoked"


class Revocation:
    """Call `apply` after each change of users and policies.

    channels: returns the open remoting connections. end_stream: ends a gRPC client's telemetry streams with an error.
    """

    def __init__(
        self,
        core: Messaging,
        authority: Authority,
        channels: Callable[[], Iterable[RemotingChannel]],
        clients: ClientTable,
    ) -> None:
        self._core = core
        self._authority = authority
        self._channels = channels
        self._clients = clients
        authority.change_listeners.append(self.apply)

    def apply(self) -> None:
        """End what senders may no longer do."""
        polls = self._end_polls()
        connections = self._close_members()
        clients = self._remove_clients()
        if polls or connections or clients:
            _log.info(
                "revoked permissions ended %d polls, %d remoting connections and %d gRPC clients",
                polls,
                connections,
                clients,
            )

    def _end_polls(self) -> int:
        ended = 0
        for context in list(self._core.in_flight):
            spec, channel = context.spec, context.channel
            if spec is None or spec.poll is None or self._may(channel, context.principal, context.command, spec):
                continue
            for reply, poll in list(channel.session.polls.items()):
                if poll is context and not reply.done():
                    ended += 1
                    if isinstance(reply, asyncio.Task):
                        reply.cancel()
                    else:
                        reply.set_exception(NotPermitted(_REVOKED))
        return ended

    def _close_members(self) -> int:
        """Close the connections of members that may no longer send their last heartbeat."""
        closed = 0
        for channel in list(self._channels()):
            beat = channel.session.heartbeat
            if beat is None or self._core.registry.member(channel) is None:
                continue
            if not self._may(channel, channel.principal, beat, REQUESTS[beat.code]):
                closed += 1
                channel.close(CloseCause.REVOKED)
        return closed

    def _remove_clients(self) -> int:
        removed = 0
        for client in self._clients:
            needed = () if client.settings is None else settings_permissions(client.settings)
            if self._has(client.principal, needed, client.peer.address.host):
                continue
            removed += 1
            code = Code.FORBIDDEN if self._authority.is_valid(client.principal) else Code.UNAUTHORIZED
            client.fail_streams(code, _REVOKED)
            self._clients.remove(client)
        return removed

    def _may(self, channel: Channel, principal: Principal, command: RemotingCommand, spec: RequestSpec) -> bool:
        try:
            return self._has(principal, permissions(spec, command.fields, command.body), channel.peer.address.host)
        except RemotingError:
            return False

    def _has(self, principal: Principal, needed: Iterable[Permission], host: str) -> bool:
        if principal is OWN:
            return True
        return self._authority.is_valid(principal) and self._authority.first_denied(principal, needed, host) is None

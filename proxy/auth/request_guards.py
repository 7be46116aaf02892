"""Requests that need a look at the brokers before or after the authority's decision."""

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from proxy.auth.authority import Authority
from proxy.auth.stored_messages import StoredMessages
from proxy.auth.super_users import SuperUsers
from proxy.core.client_registry import ClientRegistry, Groups, Role
from proxy.core.context import Context
from proxy.core.messaging import Entrance, Handling, Messaging, Serve
from proxy.core.reply_recipients import ReplyRecipients
from proxy.settings.cluster import ClientSignatures
from proxy.settings.model import Settings
from remoting.command import RemotingCommand


class RequestGuards:
    """Guards of messages, of replies and of super users.

    For the core: handlers of requests, and `reply_guards` as in `Messaging`. check_push: as in `StoredMessages`.
    replies: clients that wait for one. registry: the groups of clients.
    """

    def __init__(self, authority: Authority, settings: Settings, registry: ClientRegistry) -> None:
        self.replies = ReplyRecipients()
        stored_messages = StoredMessages(
            authority,
            self.replies,
            lambda channel: Groups() if (member := registry.member(channel)) is None else member.groups,
            lambda group: [
                member.channel for member in registry.members(Role.PRODUCER, group) if member.channel is not None
            ],
            brokers_judge=settings.cluster.client_signatures is ClientSignatures.PASS,
            # The embedded broker compares the topic, too.
            recalls_by_id=settings.embedded.directory is None,
        )
        super_users = SuperUsers(authority)
        self.handlers: dict[int, Handling] = {**stored_messages.handlers, **super_users.handlers}
        self.reply_guards = stored_messages.reply_guards
        self.check_push = stored_messages.check_push
        self._at_broker = {
            **stored_messages.handlers,
            **dict.fromkeys(super_users.handlers, super_users.change),
        }

    def wrap_entrance(self, core: Messaging, entrance: Entrance) -> Entrance:
        """Return the entrance of the embedded broker's own listener with the guards before it."""
        return replace(entrance, serve=partial(self._serve_at_broker, core, entrance.serve))

    def _serve_at_broker(self, core: Messaging, serve: Serve, context: Context) -> Awaitable[RemotingCommand] | None:
        guard = self._at_broker.get(context.code)
        return serve(context) if guard is None else guard(core, context, serve)

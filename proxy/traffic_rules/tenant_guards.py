"""Guards of the core that separate clients in namespaces, beside the rewriting of names."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from proxy.core.backend import Push, unchecked
from proxy.core.checks import Check
from proxy.core.connections import ConnectionListener
from proxy.core.messaging import Entrance, Handling, Messaging
from proxy.settings.model import Settings
from proxy.traffic_rules.tenant_messages import TenantMessages
from proxy.traffic_rules.tenant_replies import TenantReplies


class TenantGuards:
    """Guards of messages and replies. Without a rules file there are none, since no client is in a namespace.

    authenticated: whether users are known; then other guards know who waits for a reply. checks: of the core, after all
    others. connection_listeners: notified of every connection.
    """

    def __init__(self, settings: Settings, authenticated: bool) -> None:
        self.checks: tuple[Check, ...] = ()
        self.connection_listeners: tuple[ConnectionListener, ...] = ()
        self._messages: TenantMessages | None = None
        self._replies: TenantReplies | None = None
        if settings.rules.file is None:
            return
        # The embedded broker compares the topic of a recalled message, too.
        self._messages = TenantMessages(recalls_by_id=settings.embedded.directory is None)
        if not authenticated:
            self._replies = TenantReplies()
            self.checks = (self._replies.expect,)
            self.connection_listeners = (self._replies.on_connection_event,)

    def wrap(self, handlers: Mapping[int, Handling]) -> Mapping[int, Handling]:
        """Return the core's handlers with the guards before them."""
        return handlers if self._messages is None else self._messages.wrap(handlers)

    def wrap_entrance(self, core: Messaging, entrance: Entrance) -> Entrance:
        """Return the entrance of the embedded broker's own listener with the guards before it."""
        if self._messages is None:
            return entrance
        return replace(entrance, serve=partial(self._messages.serve_at_broker, core, entrance.serve))

    def check_push(self, push: Push) -> Push:
        """Return a push that sends replies to the clients that wait for them."""
        return unchecked(push) if self._replies is None else self._replies.route(push)

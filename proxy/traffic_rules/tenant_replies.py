"""Request-reply of clients in namespaces without authentication.

A broker pushes a reply to one of the connections that have registered the client id in it. Clients of several
namespaces may have the same id, and refuse the replies of other namespaces.
"""

from collections import defaultdict

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.connections import ConnectionEvent
from proxy.core.context import Context
from proxy.core.remoting_channel import RemotingChannel
from proxy.core.reply_recipients import ReplyRecipients
from proxy.traffic_rules.tenant_messages import names_of
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.outcomes import Reply

_PUSH = int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)


class TenantReplies:
    """Remembers, for each namespace, which clients wait for replies, and sends those to them."""

    def __init__(self) -> None:
        # By namespace: clients of several ones may choose the same correlation id.
        self._replies: defaultdict[str, ReplyRecipients] = defaultdict(ReplyRecipients)

    def expect(self, context: Context) -> None:
        """Remember a message that asks for a reply: a check of the core."""
        if context.known_spec.send is not None:
            names = names_of(context.channel, context.principal)
            if names is not None:
                self._replies[names.namespace].expect(context)

    def route(self, push: Push) -> Push:
        """Return a push that sends a reply to the client of its sender's namespace that has asked for it.

        If that is unknown, since the client has asked elsewhere, the broker's choice is kept.
        """

        def routed(channel: Channel, command: RemotingCommand) -> Reply | None:
            return push(channel if command.code != _PUSH else self._asker(command) or channel, command)

        return routed

    def on_connection_event(self, event: ConnectionEvent) -> None:
        """Forget the messages of a connection that has closed."""
        channel = event.connection
        if event.cause is not None and isinstance(channel, RemotingChannel):
            names = names_of(channel, channel.principal)
            if names is not None and names.namespace in self._replies:
                self._replies[names.namespace].on_connection_event(event)

    def _asker(self, command: RemotingCommand) -> Channel | None:
        # Brokers push the sender's group unchanged, and no client in a namespace can have another's.
        namespace = command.fields.get("producerGroup", "").partition("%")[0]
        replies = self._replies.get(namespace)
        return None if replies is None else replies.asker(command)

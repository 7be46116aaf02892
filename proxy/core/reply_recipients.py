"""Request-reply: a reply goes to the client that has asked, whichever client id others claim.

Brokers push a reply to any connection that has registered the client id in it. With authentication, a push is relayed
only if its correlation id is that of a message that the same connection, or the same user in this process, has sent.
Without, it goes to the connection of the sender's namespace that has sent such a message, if there is one.
"""

from typing import NamedTuple

from proxy.core.channel import Channel
from proxy.core.connections import ConnectionEvent
from proxy.core.context import Context
from proxy.core.principal import Principal
from proxy.core.remoting_channel import RemotingChannel
from remoting import properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand

# Unanswered messages of one connection that are remembered; then the oldest is forgotten.
_MAX_ASKED = 4096
_MAX_ID_LENGTH = 128
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


class _Waiting(NamedTuple):
    channel: Channel
    principal: Principal


class ReplyRecipients:
    """Remembers which clients wait for replies, and finds the recipients of those."""

    def __init__(self) -> None:
        # By correlation id. The session of each channel has its ids, oldest first.
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, context: Context) -> None:
        """Remember a message that asks for a reply, and the user of a heartbeat: a check of the core after the
        authority's.
        """
        spec = context.known_spec
        if spec.send is None:
            if context.code == RequestCode.HEART_BEAT and context.principal.failure is None:
                context.channel.session.heartbeat_users[context.principal.user] = context.principal
            return
        text = context.fields.get(spec.send.properties)
        if text is not None and properties.MESSAGE_REPLY_TO_CLIENT in text and context.code not in REPLIES:
            self._expect(context, text)

    def _expect(self, context: Context, text: str) -> None:
        correlation = properties.get(text, properties.CORRELATION_ID)
        channel = context.channel
        # gRPC clients get no replies.
        if not correlation or len(correlation) > _MAX_ID_LENGTH or not isinstance(channel, RemotingChannel):
            return
        # The first one counts: a consumer of the message knows its id, too.
        asked = self._waiting.setdefault(correlation, _Waiting(channel, context.principal))
        if asked.channel is not channel:
            return
        ids = channel.session.asked
        ids[correlation] = None
        if len(ids) > _MAX_ASKED:
            self._forget(next(iter(ids)))

    def recipient(self, channel: Channel, command: RemotingCommand) -> Channel | None:
        """Return the client for a reply that a broker pushes to a channel; None if that must not get it."""
        text = command.fields.get("properties", "")
        asked = self._forget(properties.get(text, properties.CORRELATION_ID) or "")
        if asked is None:
            return None
        client_id = properties.get(text, properties.MESSAGE_REPLY_TO_CLIENT)
        if not asked.channel.closed and asked.channel.session.client_id == client_id:
            return asked.channel
        # Another connection of the same client.
        users = channel.session.heartbeat_users
        return channel if asked.principal.failure is None and asked.principal.user in users else None

    def asker(self, command: RemotingCommand) -> Channel | None:
        """Return the connection that has asked for a reply under the client id in it; None if none is open."""
        text = command.fields.get("properties", "")
        asked = self._forget(properties.get(text, properties.CORRELATION_ID) or "")
        if asked is None or asked.channel.closed:
            return None
        client_id = properties.get(text, properties.MESSAGE_REPLY_TO_CLIENT)
        return asked.channel if asked.channel.session.client_id == client_id else None

    def on_connection_event(self, event: ConnectionEvent) -> None:
        """Forget the messages of a connection that has closed."""
        channel = event.connection
        if event.cause is not None and isinstance(channel, RemotingChannel):
            for correlation in list(channel.session.asked):
                self._forget(correlation)

    def _forget(self, correlation: str) -> _Waiting | None:
        asked = self._waiting.pop(correlation, None)
        if asked is not None:
            asked.channel.session.asked.pop(correlation, None)
        return asked

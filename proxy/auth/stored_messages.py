"""Permissions on stored messages, where a request names a message but not the topic that a broker takes it from.

A broker returns or sends back the message at an offset of its log, whatever topic the request names, and looks up keys
by a hash of topic and key.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from proxy.auth.authority import Authority
from proxy.auth.resources import popped_topic
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.forwarding import forward, single_broker
from proxy.core.messaging import Handling, Messaging, Reply, as_future
from proxy.core.principal import OWN
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.names import RETRY_PREFIX
from remoting.permissions import Action, Permission, ResourceKind
from remoting.requests import REQUESTS

_READ = (Action.SUB, Action.GET)
Serve = Callable[[Context], Awaitable[RemotingCommand] | None]


class StoredMessages:
    """Checks the topics of the messages themselves."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        # For the core: handlers of requests, and `Messaging.reply_guards`.
        self.handlers: dict[int, Handling] = {int(RequestCode.CONSUMER_SEND_MSG_BACK): self.send_back}
        self.reply_guards = {
            int(code): self.check_reply for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE)
        }

    def check_reply(self, context: Context, reply: RemotingCommand) -> None:
        """Empty a reply with a message that its receiver may not read."""
        if context.principal is OWN or reply.code != ResponseCode.SUCCESS:
            return
        try:
            topics = {message.topic for message in messages.decode_messages(reply.body)}
        except BodyError:
            topics = {""}
        if not self._may(context, topics, _READ):
            reply.code = reply.header["code"] = int(ResponseCode.NO_PERMISSION)
            reply.header["remark"] = f"the user {context.principal.user} has no permission on the message's topic"
            reply.fields.clear()
            reply.body = b""

    def send_back(self, core: Messaging, context: Context, serve: Serve | None = None) -> Awaitable[RemotingCommand]:
        """CONSUMER_SEND_MSG_BACK: check the topic of the message, then serve the request (default: forward it)."""
        return self._send_back(core, context, partial(forward, core) if serve is None else serve)

    async def _send_back(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        if context.principal is not OWN:
            message = await self._view(core, context)
            group = context.fields["group"]
            topic = None if message is None else popped_topic(message.topic, group)
            if topic not in (None, RETRY_PREFIX + group) and not self._may(context, {str(topic)}, (Action.SUB,)):
                return commands.response(
                    ResponseCode.NO_PERMISSION,
                    remark=f"the user {context.principal.user} has no permission Sub on the message's topic",
                )
        reply = serve(context)
        return commands.success() if reply is None else await as_future(reply)

    async def _view(self, core: Messaging, context: Context) -> messages.StoredMessage | None:
        """Return the message at the request's offset; None if its broker has none."""
        broker = context.fields.get("bname") or context.channel.peer.broker
        if not broker:
            topic = context.fields.get("originTopic") or ""
            brokers = (await core.backend.route(topic)).brokers if topic else await core.backend.brokers()
            broker = single_broker(core, context, brokers)
        view = commands.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": context.fields["offset"], "bname": broker})
        spec, timeout = REQUESTS[RequestCode.VIEW_MESSAGE_BY_ID], core.settings.cluster.request_timeout
        reply = await core.backend.request(broker, spec, view, timeout, None)
        return messages.decode_message(reply.body) if reply.code == ResponseCode.SUCCESS else None

    def check_push(self, push: Push) -> Push:
        """Return a relay that drops transaction checks for clients that may not publish to the message's topic.

        Any client can register as a member of a producer group, and a check has the message.
        """

        def checked(channel: Channel, command: RemotingCommand) -> Reply | None:
            if command.code == RequestCode.CHECK_TRANSACTION_STATE and channel.principal is not OWN:
                topic = messages.decode_message(command.body).topic
                needed = (Permission(ResourceKind.TOPIC, topic, (Action.PUB,)),)
                host = channel.peer.address.host
                if self._authority.first_denied(channel.principal, needed, host) is not None:
                    self._authority.audit.denied(
                        channel.principal, channel.protocol, host, "CHECK_TRANSACTION_STATE", f"Pub on Topic:{topic}"
                    )
                    return None
            return push(channel, command)

        return checked

    def _may(self, context: Context, topics: Iterable[str], actions: tuple[Action, ...]) -> bool:
        authority, host = self._authority, context.channel.peer.address.host
        needed = tuple(Permission(ResourceKind.TOPIC, topic, actions) for topic in topics)
        denied = authority.first_denied(context.principal, needed, host)
        if denied is None:
            return True
        authority.counts[context.principal.method, "forbidden"] += 1
        authority.audit.denied(
            context.principal,
            context.channel.protocol,
            host,
            context.known_spec.name,
            f"{denied[0].actions[0]} on Topic:{denied[0].name}: {denied[1]}",
        )
        return False

"""Permissions on stored messages, where a request names a message but not the topic that a broker takes it from.

A broker returns or sends back the message at an offset of its log, also for a request with another topic, and
looks up keys by a hash of topic and key.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from proxy.auth.authority import Authority
from proxy.auth.broker_decisions import passes_authority
from proxy.auth.policy import Role
from proxy.core import stored_topics
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.handlers.tools import consume_message, query_client
from proxy.core.messaging import Messaging, Serve, completed, served
from proxy.core.principal import OWN, Method, Principal
from proxy.core.remoting_channel import BrokerChannel
from proxy.core.reply_recipients import ReplyRecipients
from proxy.core.stored_topics import also_affected, committed_topic, real_topic
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.names import dead_letter_topic, popped_topic, retry_topic
from remoting.outcomes import Reply
from remoting.permissions import Action, Permission, ResourceKind

_READ = (Action.SUB, Action.GET)


class StoredMessages:
    """Checks the topics of the messages themselves.

    replies: finds the recipients of pushed replies. groups_of: returns the groups of a client by accepted heartbeats.
    producers: returns the clients in a producer group.
    brokers_judge: whether brokers decide about the requests that remoting clients have signed. recalls_by_id: whether
    brokers recall a message by its id, of any topic.
    """

    def __init__(
        self,
        authority: Authority,
        replies: ReplyRecipients,
        groups_of: Callable[[Channel], Groups] = lambda channel: Groups(),
        producers: Callable[[str], Iterable[Channel]] = lambda group: (),
        *,
        brokers_judge: bool = False,
        recalls_by_id: bool = True,
    ) -> None:
        self._authority = authority
        self._replies = replies
        self._groups_of = groups_of
        self._producers = producers
        self._brokers_judge = brokers_judge
        # For the core: handlers of requests, and `Messaging.reply_guards`.
        self.handlers = {
            int(RequestCode.CONSUMER_SEND_MSG_BACK): self.send_back,
            int(RequestCode.END_TRANSACTION): self.end_transaction,
            int(RequestCode.VIEW_MESSAGE_BY_ID): self.view,
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): self.consume_directly,
        }
        if recalls_by_id:
            self.handlers[int(RequestCode.RECALL_MESSAGE)] = self.recall
        self.reply_guards = {
            int(code): self.check_reply for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE)
        }

    def check_reply(self, context: Context, reply: RemotingCommand) -> None:
        """Empty a reply with a message that its receiver may not read."""
        if self._is_trusted(context) or reply.code != ResponseCode.SUCCESS:
            return
        try:
            topics = {real_topic(message) for message in messages.decode_messages(reply.body)}
        except BodyError:
            topics = {""}
        if not self._may(context, topics, _READ):
            reply.code = reply.header["code"] = int(ResponseCode.NO_PERMISSION)
            reply.header["remark"] = f"the user {context.principal.user} has no permission on the message's topic"
            reply.fields.clear()
            reply.body = b""

    def view(self, core: Messaging, context: Context, serve: Serve | None = None) -> Awaitable[RemotingCommand]:
        """VIEW_MESSAGE_BY_ID: check that there is a message; `check_reply` checks its topic."""
        return self._view(core, context, partial(forward, core) if serve is None else serve)

    async def _view(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        # The embedded broker finds nothing else than messages. Super users may read everything, and the messages too
        # that are in no queue any more.
        looks = not core.settings.has_embedded_broker and not self._is_trusted(context)
        if looks and self._authority.grants(context.principal).role is not Role.SUPER:
            await stored_topics.view(core, context, context.fields["offset"])
        return await served(serve, context)

    def consume_directly(
        self, core: Messaging, context: Context, serve: Serve | None = None
    ) -> Awaitable[RemotingCommand]:
        """CONSUME_MESSAGE_DIRECTLY: check that there is a message; `check_push` checks its topic."""
        if not self._is_trusted(context):
            return consume_message(core, context, serve)
        return query_client(core, context) if serve is None else served(serve, context)

    def send_back(self, core: Messaging, context: Context, serve: Serve | None = None) -> Awaitable[RemotingCommand]:
        """CONSUMER_SEND_MSG_BACK: check the topic of the message, then serve the request (default: forward it)."""
        return self._send_back(core, context, partial(forward, core) if serve is None else serve)

    async def _send_back(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        if not self._is_trusted(context):
            message = await stored_topics.view(core, context, context.fields["offset"])
            group, stored = context.fields["group"], real_topic(message)
            topic = popped_topic(stored, group)
            needed = () if topic == retry_topic(group) else (Permission(ResourceKind.TOPIC, topic, (Action.SUB,)),)
            denial = self._denial(context, needed, also_affected(message, stored))
            if denial is not None:
                return denial
        return await served(serve, context)

    def end_transaction(
        self, core: Messaging, context: Context, serve: Serve | None = None
    ) -> Awaitable[RemotingCommand]:
        """END_TRANSACTION: check the topic of the half message, then serve the request (default: forward it)."""
        return self._end_transaction(core, context, partial(forward, core) if serve is None else serve)

    async def _end_transaction(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        if not self._is_trusted(context):
            half = await stored_topics.view(core, context, context.fields["commitLogOffset"])
            topic = committed_topic(half)
            needed = (Permission(ResourceKind.TOPIC, topic, (Action.PUB,)),)
            denial = self._denial(context, needed, also_affected(half, topic))
            if denial is not None:
                return denial
        return await served(serve, context)

    def recall(self, core: Messaging, context: Context, serve: Serve | None = None) -> Awaitable[RemotingCommand]:
        """RECALL_MESSAGE: check the topic of the delayed message, then serve the request (default: forward it)."""
        return self._recall(core, context, partial(forward, core) if serve is None else serve)

    async def _recall(self, core: Messaging, context: Context, serve: Serve) -> RemotingCommand:
        if not self._is_trusted(context):
            topics = await stored_topics.topics_of_delayed(core, context)
            if not self._may(context, topics, (Action.PUB,)):
                return commands.response(
                    ResponseCode.NO_PERMISSION,
                    remark=f"the user {context.principal.user} has no permission Pub on the message's topic",
                )
        return await served(serve, context)

    def _is_trusted(self, context: Context) -> bool:
        return context.principal is OWN or (self._brokers_judge and passes_authority(context))

    def check_push(self, push: Push) -> Push:
        """Return a relay that refuses messages for clients without the permission on the message's topic.

        They are those of transaction checks, since any client can register as a member of a producer group, and of
        CONSUME_MESSAGE_DIRECTLY, whose sender chooses any message of the broker. A check goes to another member of the
        group that has the permission. Replies go to the client that has asked, since any client can register with its
        client id.
        """

        def checked(channel: Channel, command: RemotingCommand) -> Reply | None:
            if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
                asked = self._replies.recipient(channel, command)
                if asked is not None:
                    return push(asked, command)
                self._deny(channel, channel.principal, command, "the reply is for another client")
                return _refused("the client has not asked for this reply")
            find = _PUSHED.get(command.code)
            needed = None if find is None or not command.body else find(command)
            if needed is None or self._may_receive(channel, needed, command):
                return push(channel, command)
            self._deny(channel, channel.principal, command, f"{needed.actions[0]} on Topic:{needed.name}")
            other = self._other_producer(needed, command)
            if other is not None:
                return push(other, command)
            return _refused(f"the client's user has no permission {needed.actions[0]} on the message's topic")

        return checked

    def _other_producer(self, needed: Permission, command: RemotingCommand) -> Channel | None:
        """Return a member of a transaction check's producer group that may receive it; None for other requests."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return None
        (group,) = _group_of(command).producers
        members = (channel for channel in self._producers(group) if not channel.closed)
        return next((channel for channel in members if self._may_receive(channel, needed, command)), None)

    def _may_receive(self, channel: Channel, needed: Permission, command: RemotingCommand) -> bool:
        principals, host = [channel.principal], channel.peer.address.host
        signed = channel.signs and channel.principal.method is Method.SIGNATURE
        if self._brokers_judge and signed and channel.principal.failure is not None:
            # Gantry does not know the user, and a broker has accepted the client as a member of the group. That proves
            # little about producers, whose groups need no permission: users that Gantry knows need one on the topic.
            pushed, groups = _group_of(command), self._groups_of(channel)
            if not (pushed - groups):
                return True
        if isinstance(channel, BrokerChannel):
            # It may be another replica, with many clients.
            principals += channel.session.heartbeat_users.values()
        return any(self._authority.first_denied(principal, (needed,), host) is None for principal in principals)

    def _deny(self, channel: Channel, principal: Principal, command: RemotingCommand, text: str) -> None:
        request, host = RequestCode(command.code).name, channel.peer.address.host
        self._authority.deny(principal, channel.protocol, host, request, text)

    def _denial(
        self, context: Context, needed: tuple[Permission, ...], affected: Iterable[str]
    ) -> RemotingCommand | None:
        """Return the answer to a sender who may not have a message stored again; None if it may.

        needed: the permission on the message's topic, if any. affected: what else the message affects.
        """
        if not self._has(context, needed):
            text = f"{needed[0].actions[0]} on the message's topic"
        elif not self._may(context, affected, (Action.PUB,)):
            text = f"{Action.PUB} on a further topic that the message affects"
        else:
            return None
        remark = f"the user {context.principal.user} has no permission {text}"
        return commands.response(ResponseCode.NO_PERMISSION, remark=remark)

    def _may(self, context: Context, topics: Iterable[str], actions: tuple[Action, ...]) -> bool:
        return self._has(context, tuple(Permission(ResourceKind.TOPIC, topic, actions) for topic in topics))

    def _has(self, context: Context, needed: tuple[Permission, ...]) -> bool:
        authority, host = self._authority, context.channel.peer.address.host
        denied = authority.first_denied(context.principal, needed, host)
        if denied is None:
            return True
        authority.deny(
            context.principal,
            context.channel.protocol,
            host,
            context.known_spec.name,
            f"{denied[0].actions[0]} on Topic:{denied[0].name}: {denied[1]}",
        )
        return False


def _refused(remark: str) -> Reply:
    return completed(commands.response(ResponseCode.NO_PERMISSION, remark=remark))


def _of_check(command: RemotingCommand) -> Permission:
    return Permission(ResourceKind.TOPIC, real_topic(messages.decode_message(command.body)), (Action.PUB,))


def _of_consumption(command: RemotingCommand) -> Permission | None:
    """Return the permission on the message's topic; None for a dead letter of the client's group."""
    topic, group = real_topic(messages.decode_message(command.body)), command.fields.get("consumerGroup", "")
    if topic == dead_letter_topic(group):
        return None
    return Permission(ResourceKind.TOPIC, popped_topic(topic, group), (Action.SUB,))


def _group_of(command: RemotingCommand) -> Groups:
    """Return the group whose member gets a broker's message."""
    if command.code == RequestCode.CHECK_TRANSACTION_STATE:
        group = messages.decode_message(command.body).get(properties.PRODUCER_GROUP) or ""
        return Groups(producers=frozenset((group,)))
    return Groups(consumers=frozenset((command.fields.get("consumerGroup", ""),)))


# The permission that a client needs for a message that a broker sends to it.
_PUSHED: dict[int, Callable[[RemotingCommand], Permission | None]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _of_check,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _of_consumption,
}

"""What operators' tools want that concerns no single broker.

GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY are for a client, DELETE_TOPIC_IN_NAMESRV for the name servers.
"""

from proxy.core.client_registry import Role
from proxy.core.context import Context
from proxy.core.forwarding import send
from proxy.core.messaging import Messaging
from proxy.core.push_relay import CLIENT_TIMEOUT
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConsumerNotOnline, InvalidRequest, RemotingError


async def ask_client(core: Messaging, context: Context) -> RemotingCommand:
    """Relay the question to the client if it is connected here, else let a broker that knows it do so.

    A tool that wants a message consumed names it; only a broker can put the message into the question.
    """
    client_id, group = context.fields["clientId"], context.fields["consumerGroup"]
    member = core.registry.find(client_id, Role.CONSUMER, group)
    complete = context.code != RequestCode.CONSUME_MESSAGE_DIRECTLY or context.command.body
    if complete and member is not None and member.channel is not None:
        question = commands.request(context.code, dict(context.fields), context.command.body)
        return await member.channel.request(question, CLIENT_TIMEOUT)
    # A broker names the one to look the message up at; any that knows the client may ask it otherwise.
    named = context.fields.get("brokerName") if context.code == RequestCode.CONSUME_MESSAGE_DIRECTLY else None
    brokers = [named] if named else sorted(await core.backend.brokers())
    if not brokers:
        raise InvalidRequest("no broker is known that could ask the client")
    reply: RemotingCommand | None = None
    for broker in brokers:
        try:
            reply = await (send(core, context, broker) or _nobody())
        except RemotingError:
            continue
        if reply.code == ResponseCode.SUCCESS:
            return reply
    if reply is None:
        raise ConsumerNotOnline(f"the client {client_id} of group {group} is not connected")
    return reply


async def forget_topic(core: Messaging, context: Context) -> RemotingCommand:
    """Take the topic, which the tool has deleted from its brokers, out of the routes."""
    await core.backend.forget_topic(context.fields["topic"])
    return commands.success()


async def _nobody() -> RemotingCommand:
    return commands.success()

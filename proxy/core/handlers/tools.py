"""Requests of operators' tools that are not for a single broker.

GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY are for a client, DELETE_TOPIC_IN_NAMESRV for the name servers.
"""

from proxy.core import stored_topics
from proxy.core.client_registry import Role
from proxy.core.context import Context
from proxy.core.forwarding import ask
from proxy.core.messaging import Messaging, Serve, served
from proxy.core.unanswered import CLIENT_TIMEOUT, failure_code
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import (
    ConnectionLost,
    ConsumerNotOnline,
    InvalidRequest,
    MessageNotFound,
    NotPermitted,
    RemotingError,
    RequestTimeout,
)
from remoting.ids import OffsetMessageId
from remoting.signature import without_signature


async def query_client(core: Messaging, context: Context) -> RemotingCommand:
    """Send the request to the client if it is connected here, else to a broker at which it is registered.

    The client does not get the signature: it could use it in other requests (see `proxy.core.push_relay`).
    CONSUME_MESSAGE_DIRECTLY names a message, which only its broker adds. The check `Tools` rejects a body: one from a
    client is never relayed to another client as a message.
    """
    client_id, group = context.fields["clientId"], context.fields["consumerGroup"]
    member = core.registry.find(client_id, Role.CONSUMER, group)
    needs_broker = context.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    if not needs_broker and member is not None and member.channel is not None:
        request = commands.request(context.code, without_signature(context.fields))
        try:
            return await member.channel.request(request, CLIENT_TIMEOUT)
        except (RequestTimeout, ConnectionLost) as error:
            return commands.response(failure_code(error), remark=str(error))
    # CONSUME_MESSAGE_DIRECTLY may name the message's broker; otherwise any broker that has the client can query it.
    named = (context.fields.get("brokerName") or context.broker) if needs_broker else None
    brokers = [named] if named else sorted(await core.backend.brokers())
    if not brokers:
        raise InvalidRequest("no broker is available that could query the client")
    reply: RemotingCommand | None = None
    for broker in brokers:
        try:
            reply = await ask(core, context, broker)
        except RemotingError:
            continue
        if reply.code == ResponseCode.SUCCESS:
            return reply
    if reply is None:
        raise ConsumerNotOnline(f"the client {client_id} of group {group} is not connected")
    return reply


async def consume_message(core: Messaging, context: Context, serve: Serve | None = None) -> RemotingCommand:
    """CONSUME_MESSAGE_DIRECTLY whose sender may have got the id of the message from others.

    serve: serves the request after the message was found (default: `query_client`).
    """
    await find_message(core, context)
    return await (query_client(core, context) if serve is None else served(serve, context))


async def find_message(core: Messaging, context: Context) -> None:
    """Find the broker that has the message of a CONSUME_MESSAGE_DIRECTLY, and note it for `query_client`.

    The first to be asked is the broker at the address in the message's id; its clients may know it by another one.
    Raises NotPermitted if none has it: a broker would send the bytes at any offset. Raises RemotingError if none shows
    it, and not all could be asked.
    """
    text = context.fields.get("msgId")
    if text is None:
        return
    place = OffsetMessageId.parse(text)
    named = context.fields.get("brokerName")
    brokers = [named] if named else sorted(await core.backend.brokers())
    if len(brokers) > 1:
        first = core.backend.broker_at(place.address)
        brokers.sort(key=lambda broker: broker != first)
    failure: RemotingError | None = None
    for broker in brokers:
        try:
            await stored_topics.view_at(core, broker, str(place.offset))
        except (MessageNotFound, NotPermitted):
            continue
        except RemotingError as error:
            failure = error
        else:
            context.broker = broker
            return
    if failure is not None:
        raise failure
    raise NotPermitted(f"no broker has the message {text}")


async def forget_topic(core: Messaging, context: Context) -> RemotingCommand:
    """Remove the routes of a topic that the tool has deleted from its brokers."""
    await core.backend.forget_topic(context.fields["topic"])
    return commands.success()

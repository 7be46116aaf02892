"""QUERY_CONSUMER_OFFSET: the committed offset of a consumer group."""

from collections.abc import Awaitable

from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.requests import REQUESTS


def query_consumer_offset(core: Messaging, context: Context) -> Awaitable[RemotingCommand] | None:
    """Forward the query. For a subscriber without an offset in a queue that never had a message, return offset 0.

    Brokers answer such a query with QUERY_NOT_FOUND. A consumer that reads from the end then asks for the maximum
    offset, and misses the messages that are stored between its two requests. As soon as the queue has its first
    message, brokers return 0 themselves. Other clients, which choose their queues and offsets themselves, get the
    broker's answer. gRPC clients, which do not sign requests, have a code for an unknown offset.
    """
    reply = forward(core, context)
    zero_if_new = context.fields.get("setZeroIfNotFound", "").lower() != "false"
    if reply is None or not zero_if_new or not context.channel.signs or not _subscribes(core, context):
        return reply
    return _zero_if_empty(core, context, reply)


def _subscribes(core: Messaging, context: Context) -> bool:
    """Return whether the client is a member of the group and has subscribed to the topic."""
    member = core.registry.member(context.channel)
    consumer = None if member is None else member.consumer_data.get(context.fields["consumerGroup"])
    return consumer is not None and consumer.subscribes(context.fields["topic"])


async def _zero_if_empty(core: Messaging, context: Context, forwarded: Awaitable[RemotingCommand]) -> RemotingCommand:
    reply = await forwarded
    if reply.code != ResponseCode.QUERY_NOT_FOUND or context.broker is None:
        return reply
    timeout, backend = core.settings.cluster.request_timeout, core.backend
    queue = {name: context.fields[name] for name in ("topic", "queueId")}
    query = commands.request(RequestCode.GET_MAX_OFFSET, {**queue, "bname": context.broker})
    try:
        # Without a channel: the client's signature does not fit.
        end = await backend.request(context.broker, REQUESTS[RequestCode.GET_MAX_OFFSET], query, timeout, None)
        if end.code != ResponseCode.SUCCESS:
            return reply
        if end.field("offset") == "0":
            return commands.success({"offset": "0"})
        # Messages were stored since, or before: the broker knows whether the first one is still there.
        return await backend.request(
            context.broker, context.known_spec, context.command.copy(), timeout, context.channel
        )
    except RemotingError:
        return reply

"""POP_MESSAGE, POP_LITE_MESSAGE: messages that the client must not or cannot take are released at once."""

import asyncio
import logging
from functools import partial

from proxy.core.context import Context
from proxy.core.empty_poll import UNREAD
from proxy.core.forwarding import broker_of, forward
from proxy.core.messaging import Messaging, as_future
from proxy.core.own_request import own_request
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.messages import StoredMessage
from remoting.names import parent_topic
from remoting.outcomes import Reply
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import real_topic
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.pop")

# Invisible duration of released messages: brokers use their own clock and may reject less than a second.
_RELEASED_INVISIBLE_MS = "1000"
# Bytes of a stored message without body, topic and properties.
_SMALLEST_RECORD = 91


def pop_message(core: Messaging, context: Context) -> Reply | None:
    """Forward the request; if the client has disconnected or does not read when messages arrive, release them.

    A broker detects a disconnected client by its connection, but only sees the proxy's connection.
    """
    handling = forward(core, context)
    if handling is None:
        return None
    popped = as_future(handling)
    # A separate future for the client: a drain may end it while the broker still pops.
    reply: Reply = asyncio.get_running_loop().create_future()
    popped.add_done_callback(partial(_deliver, core, context, reply))
    return reply


def _deliver(core: Messaging, context: Context, reply: Reply, popped: Reply) -> None:
    error = None if popped.cancelled() else popped.exception()
    unread = context.channel.unread_bytes > core.settings.limits.unread
    waiting = not reply.done() and not context.channel.closed and not unread
    released = not waiting and not popped.cancelled() and error is None and popped.result().code == ResponseCode.SUCCESS
    if released:
        spawn_quietly(_release(core, context, popped.result()))
    if reply.done():
        return
    if released:
        # A gRPC client that has terminated may still read: it must not receive messages that are delivered again.
        remark = UNREAD if unread else "the client has disconnected"
        reply.set_result(commands.response(ResponseCode.PULL_NOT_FOUND, remark=remark))
    elif popped.cancelled():
        reply.cancel()
    elif error is not None:
        reply.set_exception(error)
    elif context.code == RequestCode.POP_LITE_MESSAGE and _has_other_topics(context, popped.result()):
        spawn_quietly(_release(core, context, popped.result()))
        remark = "the broker has returned messages of another topic: another client uses this client id"
        reply.set_result(commands.response(ResponseCode.NO_PERMISSION, remark=remark))
    else:
        reply.set_result(popped.result())


def _has_other_topics(context: Context, popped: RemotingCommand) -> bool:
    """Return whether a reply has messages that are not of the topic of the request, for which it was permitted.

    Brokers choose the messages by the client id alone (PopLiteMessageProcessor). Where no clients are separated this
    matters too: a consumer that acknowledges another one's messages loses them for it. Raises no error.
    """
    if popped.code != ResponseCode.SUCCESS or len(popped.body) < _SMALLEST_RECORD:
        return False
    try:
        stored = messages.decode_messages(popped.body)
    except BodyError:
        return True
    return any(context.fields["topic"] not in _topics_of(message) for message in stored)


def _topics_of(message: StoredMessage) -> list[str]:
    """Return the parent topics of a message's lite topics, else its own topic.

    A dead letter keeps the queue of its lite topic, so that brokers return it from there, too.
    """
    queues = (message.get(properties.INNER_MULTI_DISPATCH) or message.topic).split(",")
    return [parent for queue in queues if (parent := parent_topic(queue)) is not None] or [message.topic]


async def _release(core: Messaging, context: Context, popped: RemotingCommand) -> None:
    topic, group = context.fields["topic"], context.fields["consumerGroup"]
    try:
        broker = await broker_of(core, context, topic)
        deliveries = _popped_messages(context, topic, popped, broker)
    except RemotingError as error:
        _log.warning("messages popped for a client that cannot take them stay invisible for their time: %s", error)
        return
    lite = context.code == RequestCode.POP_LITE_MESSAGE
    requests = [
        _release_request(_topics_of(delivery.message)[0] if lite else topic, group, delivery, broker)
        for delivery in deliveries
    ]
    await asyncio.gather(*(own_request(core, broker, request) for request in requests))
    _log.info("released %d messages popped for a client of group %s that cannot take them", len(requests), group)


def _popped_messages(context: Context, topic: str, reply: RemotingCommand, broker: str) -> list[PoppedMessage]:
    stored = messages.decode_messages(reply.body)
    if context.code == RequestCode.POP_LITE_MESSAGE:
        return pop.popped_lite(stored, reply.fields, broker)
    return pop.popped(stored, topic, reply.fields, broker)


def _release_request(topic: str, group: str, delivery: PoppedMessage, broker: str) -> RemotingCommand:
    handle = delivery.extra_info
    fields = {
        "consumerGroup": group,
        "topic": real_topic(topic, group, handle.retry),
        "queueId": str(handle.queue_id),
        "extraInfo": str(handle),
        "offset": str(handle.queue_offset),
        "invisibleTime": _RELEASED_INVISIBLE_MS,
        "bname": broker,
    }
    lite_topic = delivery.message.get(properties.LITE_TOPIC)
    if lite_topic is not None:
        # No consumer has received it.
        fields.update(liteTopic=lite_topic, suspend="true")
    return commands.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

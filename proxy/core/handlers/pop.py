"""POP_MESSAGE, POP_LITE_MESSAGE: what was popped for a client that is gone is given back at once."""

import asyncio
import logging
from functools import partial

from proxy.core.context import Context
from proxy.core.forwarding import forward, only
from proxy.core.messaging import Messaging, Reply, as_future
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import real_topic
from remoting.requests import REQUESTS
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.pop")

# As long as popped messages stay invisible after nobody was left to take them, in ms: brokers count
# from their own clock, and below a second they may refuse.
_INVISIBLE = "1000"


def pop_message(core: Messaging, context: Context) -> Reply | None:
    """Forward the request; should the client have gone when messages come, others get them soon.

    A broker sees by the connection whether a waiting client is still there. It sees only ours.
    """
    handling = forward(core, context)
    if handling is None:
        return None
    popped = as_future(handling)
    # The client's own future: the drain may end it while the broker still pops.
    reply: Reply = asyncio.get_running_loop().create_future()
    popped.add_done_callback(partial(_deliver, core, context, reply))
    return reply


def _deliver(core: Messaging, context: Context, reply: Reply, popped: Reply) -> None:
    error = None if popped.cancelled() else popped.exception()
    wanted = not reply.done() and not context.channel.closed
    returned = not wanted and not popped.cancelled() and error is None and popped.result().code == ResponseCode.SUCCESS
    if returned:
        spawn_quietly(_give_back(core, context, popped.result()))
    if reply.done():
        return
    if returned:
        # A gRPC client that said goodbye may still read: it must not get what others are about to get.
        reply.set_result(commands.response(ResponseCode.PULL_NOT_FOUND, remark="the client is gone"))
    elif popped.cancelled():
        reply.cancel()
    elif error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(popped.result())


async def _give_back(core: Messaging, context: Context, answer: RemotingCommand) -> None:
    topic, group = context.fields["topic"], context.fields["consumerGroup"]
    try:
        broker = context.fields.get("bname") or context.channel.peer.broker
        if not broker:
            broker = only(core, context, (await core.backend.route(topic)).brokers)
        taken = _taken(context, topic, answer, broker)
    except RemotingError as error:
        _log.warning("messages popped for a client that is gone stay invisible: %s", error)
        return
    spec, timeout = REQUESTS[RequestCode.CHANGE_MESSAGE_INVISIBLETIME], core.settings.cluster.request_timeout
    requests = [_visible_soon(topic, group, one, broker) for one in taken]
    await asyncio.gather(*(core.backend.request(broker, spec, one, timeout, None) for one in requests))
    _log.info("%d messages popped for a client of %s that is gone were given back", len(requests), group)


def _taken(context: Context, topic: str, answer: RemotingCommand, broker: str) -> list[PoppedMessage]:
    found = messages.decode_messages(answer.body)
    if context.code == RequestCode.POP_LITE_MESSAGE:
        return pop.popped_lite(found, answer.fields, broker)
    return pop.popped(found, topic, answer.fields, broker)


def _visible_soon(topic: str, group: str, one: PoppedMessage, broker: str) -> RemotingCommand:
    handle = one.extra_info
    fields = {
        "consumerGroup": group,
        "topic": real_topic(topic, group, handle.retry),
        "queueId": str(handle.queue_id),
        "extraInfo": str(handle),
        "offset": str(handle.queue_offset),
        "invisibleTime": _INVISIBLE,
        "bname": broker,
    }
    lite_topic = one.message.get(properties.LITE_TOPIC)
    if lite_topic is not None:
        # Nobody has tried to consume it.
        fields.update(liteTopic=lite_topic, suspend="true")
    return commands.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

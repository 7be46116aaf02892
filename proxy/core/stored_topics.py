"""Topics of stored messages, where a request names a message but not the topic that a broker takes it from.

A broker returns or sends back the message at an offset of its log, whatever topic the request names, and removes a
delayed message by its id.
"""

import asyncio

from proxy.core.context import Context
from proxy.core.forwarding import single_broker
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ServiceUnavailable
from remoting.ids import RecallHandle
from remoting.names import RETRY_PREFIX
from remoting.requests import REQUESTS

# How brokers begin the remark for an offset without a message (QueryMessageProcessor.viewMessageById).
NO_MESSAGE = "can not find message"
# The brokers' topic of delayed messages, and the maximum number of messages with one id that brokers return, the newest
# ones (MessageStoreConfig.defaultQueryMaxNum).
_TIMER_TOPIC = "rmq_sys_wheel_timer"
_MAX_DELAYED = 32
# Look-ups of a delayed message, and seconds between them: brokers index a message a moment after it was sent.
_LOOKUPS = 6
_LOOKUP_INTERVAL = 0.1


async def view(core: Messaging, context: Context, offset: str) -> messages.StoredMessage | None:
    """Return the message at an offset of the request's broker; None if that has none. Raises ServiceUnavailable."""
    broker = context.fields.get("bname") or context.channel.peer.broker
    if not broker:
        topic = context.topic
        brokers = (await core.backend.route(topic)).brokers if topic else await core.backend.brokers()
        broker = single_broker(core, context, brokers)
    request = commands.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset, "bname": broker})
    spec, timeout = REQUESTS[RequestCode.VIEW_MESSAGE_BY_ID], core.settings.cluster.request_timeout
    reply = await core.backend.request(broker, spec, request, timeout, None)
    if reply.code == ResponseCode.SUCCESS:
        return messages.decode_message(reply.body)
    if reply.code == ResponseCode.SYSTEM_ERROR and (reply.remark or "").startswith(NO_MESSAGE):
        return None
    # Without the message's topic there is no decision.
    raise ServiceUnavailable(f"the broker {broker} does not show the message: {reply.remark}")


def topics_of(message: messages.StoredMessage, group: str) -> tuple[str, ...]:
    """Return the topic of a message and, of one that a group gets again, also the topic that it was sent to."""
    topic, retry = message.topic, RETRY_PREFIX + group
    if not topic.startswith(RETRY_PREFIX):
        return (topic,)
    origins = {message.get(properties.RETRY_TOPIC)}
    if topic.startswith((retry + "_", retry + "+")):
        # The retry topic of pop consumers.
        origins.add(topic[len(retry) + 1 :])
    return (topic, *sorted(filter(None, origins)))


async def topics_of_delayed(core: Messaging, context: Context) -> set[str]:
    """Return the topics of the delayed messages with the id in a request's recall handle; "" for unknown ones.

    Raises BodyError for a handle that cannot be read: a broker might read it.

    The topic in the handle is a client's text: brokers remove a delayed message by its id alone, unless
    appendTopicForTimerDeleteKey is on.
    """
    handle = RecallHandle.parse(context.fields.get("recallHandle", ""))
    broker = context.fields.get("bname") or context.channel.peer.broker or handle.broker_name
    fields = {
        "topic": _TIMER_TOPIC,
        "key": handle.message_id,
        "maxNum": str(_MAX_DELAYED),
        "beginTimestamp": "0",
        "endTimestamp": str(2**63 - 1),
        "_UNIQUE_KEY_QUERY": "true",
        "bname": broker,
    }
    spec, timeout = REQUESTS[RequestCode.QUERY_MESSAGE], core.settings.cluster.request_timeout
    query = commands.request(RequestCode.QUERY_MESSAGE, fields)
    for _ in range(_LOOKUPS):
        reply = await core.backend.request(broker, spec, query.copy(), timeout, None)
        if reply.code == ResponseCode.SUCCESS:
            delayed = messages.decode_messages(reply.body)
            topics = {message.get(properties.REAL_TOPIC) or message.topic for message in delayed}
            # There may be further ones, of any topic.
            return topics if len(delayed) < _MAX_DELAYED else {*topics, ""}
        await asyncio.sleep(_LOOKUP_INTERVAL)
    return set()

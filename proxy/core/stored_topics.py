"""Topics of stored messages, where a request names a message but not the topic that a broker takes it from.

A broker returns or sends back the message at an offset of its log, and removes a delayed message by its id, without a
look at the topic in the request.
"""

import asyncio
from dataclasses import replace

from proxy.core.context import Context, Viewed
from proxy.core.forwarding import broker_of
from proxy.core.messaging import Messaging
from proxy.core.own_request import own_request
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import MessageNotFound, NotPermitted, ServiceUnavailable
from remoting.ids import RecallHandle
from remoting.message_query import unique_id_query
from remoting.names import RETRY_PREFIX, TIMER_TOPIC, TOOLS_GROUP, is_internal, parent_topic, popped_topic
from remoting.pulling import NOTHING, reading_fields

# How brokers begin the remark for an offset without a message (QueryMessageProcessor.viewMessageById).
NO_MESSAGE = "can not find message"
# Maximum number of messages with one id that brokers return, the newest ones (MessageStoreConfig.defaultQueryMaxNum).
_MAX_DELAYED = 32
# Look-ups of a delayed message, and seconds between them: brokers index a message a moment after it was sent.
_LOOKUPS = 6
_LOOKUP_INTERVAL = 0.1
# Seconds before each look at a queue: brokers add a message to it a moment after it was stored.
_QUEUE_DELAYS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
# Digits of a 64-bit number.
_MAX_DIGITS = 19


async def view(core: Messaging, context: Context, offset: str) -> messages.StoredMessage:
    """Return the message at an offset of the request's broker, perhaps without its body.

    Several guards look at the message of one request, which is looked up once.

    Raises MessageNotFound if there is none. The request must not reach the broker then: there may be one when it
    arrives, which nothing has checked. Raises NotPermitted if it is not one of the broker's messages,
    ServiceUnavailable, BodyError.
    """
    broker = await broker_of(core, context, context.topic)
    viewed = context.viewed
    if viewed is not None and viewed.broker == broker and viewed.offset == offset:
        return viewed.message
    message = await view_at(core, broker, offset)
    # The body may have megabytes, and the request may wait.
    context.viewed = Viewed(broker, offset, replace(message, body=b""))
    return message


async def view_at(core: Messaging, broker: str, offset: str) -> messages.StoredMessage:
    """Return the message at an offset of a broker. Raises errors as `view`.

    A broker takes the bytes at any offset for a record (DefaultMessageStore.lookMessageByOffset), those too in the body
    of a client's message. It is one of its messages only if a queue has it at this offset. The embedded broker finds
    its messages by checksums that clients cannot compute.
    """
    request = commands.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset, "bname": broker})
    reply = await own_request(core, broker, request)
    if reply.code == ResponseCode.SUCCESS:
        message = messages.decode_message(reply.body)
        if core.settings.has_embedded_broker or await _is_in_queue(core, broker, message, offset):
            return message
        raise NotPermitted(f"the broker {broker} has no message at the offset {offset} in a queue")
    if reply.code == ResponseCode.SYSTEM_ERROR and (reply.remark or "").startswith(NO_MESSAGE):
        raise MessageNotFound(reply.remark)
    # Without the message's topic there is no decision.
    raise ServiceUnavailable(f"the broker {broker} does not show the message: {reply.remark}")


async def _is_in_queue(core: Messaging, broker: str, message: messages.StoredMessage, offset: str) -> bool:
    """Return whether the queue that a message names has it at this offset of the log.

    False also if the queue or its first messages have been deleted, since nothing else shows that the message is one.
    Raises RemotingError if the broker does not show the queue.
    """
    if str(message.commit_log_offset) != offset.strip():
        return False
    places, refusal = _places(message), ""
    for delay in _QUEUE_DELAYS:
        await asyncio.sleep(delay)
        awaited = []
        for place in places:
            reply = await _pull(core, broker, *place)
            if reply.code == ResponseCode.SUCCESS:
                pulled = messages.decode_messages(reply.body)[:1]
                if any(first.commit_log_offset == message.commit_log_offset for first in pulled):
                    return True
            elif reply.code in NOTHING:
                if not _begins_after(reply, place[2]):
                    awaited.append(place)
            elif reply.code != ResponseCode.TOPIC_NOT_EXIST:
                refusal = f"the broker {broker} does not show the message's queue: {reply.remark}"
        places = awaited
        if not places:
            break
    if refusal:
        # It may be busy, or the topic may be write-only.
        raise ServiceUnavailable(refusal)
    return False


def _begins_after(reply: RemotingCommand, queue_offset: int) -> bool:
    """Return whether the reply to a pull says that the queue's first messages, with this one, have been deleted."""
    first = reply.fields.get("minOffset", "")
    return first.isascii() and first.isdecimal() and int(first[:_MAX_DIGITS]) > queue_offset


def _places(message: messages.StoredMessage) -> list[tuple[str, int, int]]:
    """Return topic, queue id and queue offset of a message, of a lite topic also those in the lite topic's queue."""
    places = [(message.topic, message.queue_id, message.queue_offset)]
    queue = message.get(properties.INNER_MULTI_DISPATCH) or ""
    place = message.get(properties.INNER_MULTI_QUEUE_OFFSET) or ""
    if parent_topic(queue) == message.topic and place.isascii() and place.isdecimal():
        places.append((queue, 0, int(place[:_MAX_DIGITS])))
    return places


async def _pull(core: Messaging, broker: str, topic: str, queue_id: int, queue_offset: int) -> RemotingCommand:
    where = {"topic": topic, "queueId": str(queue_id), "bname": broker}
    pull = commands.request(RequestCode.PULL_MESSAGE, {**where, **reading_fields(TOOLS_GROUP, queue_offset, 1)})
    return await own_request(core, broker, pull)


def real_topic(message: messages.StoredMessage) -> str:
    """Return the topic of a message, also while brokers keep it in an internal one until it is due or committed.

    In other topics, the property is a client's text.
    """
    return (message.get(properties.REAL_TOPIC) if is_internal(message.topic) else None) or message.topic


def committed_topic(half: messages.StoredMessage) -> str:
    """Return the topic to which a broker commits a message that it reads as a half message, in any topic."""
    return half.get(properties.REAL_TOPIC) or half.topic


def also_affected(message: messages.StoredMessage, topic: str) -> tuple[str, ...]:
    """Return the topics and queues, beside the topic itself, that a message affects when it is stored again there.

    Brokers obey its properties again: they put it into more queues, and remove the delayed message with an id, of any
    topic, for which "" stands. Queues of lite topics in the topic itself are not among them: brokers have set these
    themselves.
    """
    text = message.get(properties.INNER_MULTI_DISPATCH)
    names = [] if text is None else [name.strip() for name in text.split(",")]
    queues = tuple(name for name in names if parent_topic(name) != topic)
    return queues if message.get(properties.TIMER_DEL_UNIQKEY) is None else (*queues, "")


def topics_of(message: messages.StoredMessage, group: str) -> tuple[str, ...]:
    """Return the topic of a message and, of one that a group gets again, also the topic that it was sent to."""
    topic = message.topic
    if not topic.startswith(RETRY_PREFIX):
        return (topic,)
    origins = {message.get(properties.RETRY_TOPIC), popped_topic(topic, group)} - {topic}
    return (topic, *sorted(filter(None, origins)))


async def topics_of_delayed(core: Messaging, context: Context) -> set[str]:
    """Return the topics of the delayed messages with the id in a request's recall handle; "" for unknown ones.

    Raises BodyError for a handle that cannot be read: a broker might read it.

    The topic in the handle is a client's text: brokers remove a delayed message by its id alone, unless
    appendTopicForTimerDeleteKey is on.
    """
    handle = RecallHandle.parse(context.fields.get("recallHandle", ""))
    broker = context.fields.get("bname") or context.channel.peer.broker or handle.broker_name
    fields = {**unique_id_query(TIMER_TOPIC, handle.message_id, _MAX_DELAYED), "bname": broker}
    query = commands.request(RequestCode.QUERY_MESSAGE, fields)
    for _ in range(_LOOKUPS):
        reply = await own_request(core, broker, query.copy())
        if reply.code == ResponseCode.SUCCESS:
            delayed = messages.decode_messages(reply.body)
            topics = {message.get(properties.REAL_TOPIC) or message.topic for message in delayed}
            # There may be further ones, of any topic.
            return topics if len(delayed) < _MAX_DELAYED else {*topics, ""}
        await asyncio.sleep(_LOOKUP_INTERVAL)
    # There may be one when the request reaches the broker.
    return {""}

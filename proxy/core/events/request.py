"""What is observed of a remoting request.

How much is looked at is a table by request code: names come from the request table for all of them, bodies and
properties are read only where there is something to count in them.
"""

import struct
import time
from collections.abc import Callable

from proxy.core.context import Context
from proxy.core.events import MAX_NAME_LENGTH, Observation
from remoting import properties
from remoting.batch_ack import BatchAckBody
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.names import RETRY_PREFIX
from remoting.requests import SEND_FIELD_NAMES

_UNKNOWN = "unknown"
# The answer says that there is nothing, not that something went wrong.
_OK = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.POLLING_TIMEOUT,
    }
)
# Of a stored record: its size, and where its sys flag is; behind that, the reconsume times, by the sizes of the hosts.
_size = struct.Struct(">i").unpack_from
_SYS_FLAG = 36
_RECONSUME_TIMES = {0b00: 72, 0b01: 84, 0b10: 84, 0b11: 96}
# Digits of a number that is read: in seconds, too, it is one of 64 bits in milliseconds.
_MAX_DIGITS = 15
# Milliseconds of the delay levels 1 to 18, as brokers have them unless told otherwise.
_LEVELS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


def is_ok(response: int) -> bool:
    """Whether a response code is no error."""
    return response in _OK


def of_request(context: Context, response: int, reply: RemotingCommand | None, now: float) -> Observation:
    """The observation of a request that ended now with this response code; `reply` where a broker or we answered."""
    channel, spec = context.channel, context.spec
    session = channel.session
    if not session.language:
        # Known better with the first heartbeat; some clients send something else before.
        session.language, session.version = context.command.language, context.command.version
    started = context.started
    seen = Observation(
        "remoting",
        _UNKNOWN if spec is None else spec.name,
        response,
        response in _OK,
        channel.peer,
        channel,
        started,
        now - started,
    )
    seen.bytes_in = context.size
    if context.sent is not None:
        seen.broker_seconds = now - context.sent
        seen.broker = context.broker
    if reply is not None:
        seen.bytes_out = len(reply.body)
    seen.trace_id = context.command.trace_id
    if spec is not None:
        fields = context.fields
        if spec.topic is not None and (topic := fields.get(spec.topic)) is not None:
            seen.topic = topic[:MAX_NAME_LENGTH]
        if spec.group is not None and (group := fields.get(spec.group)) is not None:
            seen.group = group[:MAX_NAME_LENGTH]
        look = _LOOKS.get(spec.code)
        if look is not None:
            look(seen, context, reply)
            if not seen.ok and response not in STORED:
                seen.messages = 0
    return seen


def _sent(seen: Observation, context: Context, _: RemotingCommand | None) -> None:
    names = SEND_FIELD_NAMES[context.code]
    _queue(seen, context.fields.get(names.queue_id))
    _message(seen, context.fields.get(names.properties, ""))


def _sent_batch(seen: Observation, context: Context, _: RemotingCommand | None) -> None:
    _queue(seen, context.fields.get(SEND_FIELD_NAMES[context.code].queue_id))
    seen.messages = count(context.command.body)


def _delivered(seen: Observation, context: Context, reply: RemotingCommand | None) -> None:
    _queue(seen, context.fields.get("queueId"))
    if reply is not None and seen.response == ResponseCode.SUCCESS:
        seen.messages = count(reply.body)
        # Where a pulling consumer's messages come again; those of other topics come for the first time.
        if seen.topic is not None and seen.topic.startswith(RETRY_PREFIX):
            seen.attempt = attempt(reply.body)
        elif seen.messages:
            seen.attempt = 1


def _popped(seen: Observation, context: Context, reply: RemotingCommand | None) -> None:
    _queue(seen, context.fields.get("queueId"))
    if reply is not None and seen.response == ResponseCode.SUCCESS:
        # A pop brings those of the retry topic along.
        seen.messages = count(reply.body)
        seen.attempt = attempt(reply.body)


def _settled(seen: Observation, context: Context, _: RemotingCommand | None) -> None:
    _queue(seen, context.fields.get("queueId"))
    seen.messages = 1


def _settled_all(seen: Observation, context: Context, _: RemotingCommand | None) -> None:
    try:
        body = BatchAckBody.decode(context.command.body)
    except BodyError:
        return
    for ack in body.acks:
        seen.topic, seen.group = ack.topic[:MAX_NAME_LENGTH], ack.consumer_group[:MAX_NAME_LENGTH]
        seen.messages += ack.bits.bit_count()


def _of_queue(seen: Observation, context: Context, _: RemotingCommand | None) -> None:
    _queue(seen, context.fields.get("queueId"))


_LOOKS: dict[int, Callable[[Observation, Context, RemotingCommand | None], None]] = {
    RequestCode.SEND_MESSAGE: _sent,
    RequestCode.SEND_MESSAGE_V2: _sent,
    RequestCode.SEND_BATCH_MESSAGE: _sent_batch,
    RequestCode.SEND_REPLY_MESSAGE: _sent,
    RequestCode.SEND_REPLY_MESSAGE_V2: _sent,
    RequestCode.CONSUMER_SEND_MSG_BACK: _settled,
    RequestCode.PULL_MESSAGE: _delivered,
    RequestCode.LITE_PULL_MESSAGE: _delivered,
    RequestCode.POP_MESSAGE: _popped,
    RequestCode.POP_LITE_MESSAGE: _popped,
    RequestCode.PEEK_MESSAGE: _delivered,
    RequestCode.ACK_MESSAGE: _settled,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _settled,
    RequestCode.BATCH_ACK_MESSAGE: _settled_all,
    RequestCode.QUERY_CONSUMER_OFFSET: _of_queue,
    RequestCode.UPDATE_CONSUMER_OFFSET: _of_queue,
    RequestCode.GET_MAX_OFFSET: _of_queue,
    RequestCode.GET_MIN_OFFSET: _of_queue,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _of_queue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _of_queue,
}


def _queue(seen: Observation, text: str | None) -> None:
    # Negative: any queue.
    if text is not None and text.isdecimal() and len(text) < 10:
        seen.queue = int(text)


def _message(seen: Observation, text: str) -> None:
    """A message that was sent, by its property string."""
    seen.messages = 1
    if properties.KEYS in text:
        keys = properties.get(text, properties.KEYS)
        seen.key = keys.split(" ", 1)[0][:MAX_NAME_LENGTH] if keys else None
    if seen.key is None and properties.SHARDING_KEY in text:
        key = properties.get(text, properties.SHARDING_KEY)
        seen.key = None if key is None else key[:MAX_NAME_LENGTH]
    if "DELAY" in text or properties.TIMER_DELIVER_MS in text:
        seen.delay_ms = delay(text)


def delay(text: str) -> int | None:
    """How far ahead the properties set the delivery, in ms; None: not at all, or unreadably."""
    for name, unit in ((properties.TIMER_DELAY_MS, 1), (properties.TIMER_DELAY_SEC, 1000)):
        value = _number(properties.get(text, name))
        if value is not None:
            return value * unit
    due = _number(properties.get(text, properties.TIMER_DELIVER_MS))
    if due is not None:
        return max(due - int(time.time() * 1000), 0)
    level = _number(properties.get(text, properties.DELAY_TIME_LEVEL))
    return None if not level else _LEVELS[min(level, len(_LEVELS)) - 1]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def count(body: bytes | memoryview) -> int:
    """How many records a body has: stored ones, or those of a batch that is sent; each begins with its size."""
    found = position = 0
    end = len(body)
    while position + 4 <= end:
        (size,) = _size(body, position)
        position += size
        if size < 4 or position > end:
            break
        found += 1
    return found


def attempt(body: bytes | memoryview) -> int | None:
    """The highest delivery attempt among stored records."""
    highest = -1
    position = 0
    try:
        while position < len(body):
            (size,) = _size(body, position)
            (flag,) = _size(body, position + _SYS_FLAG)
            (times,) = _size(body, position + _RECONSUME_TIMES[flag >> 4 & 0b11])
            if size <= 0:
                break
            highest = max(highest, times)
            position += size
    except struct.error:
        # It breaks off; clients see to that.
        pass
    return None if highest < 0 else highest + 1

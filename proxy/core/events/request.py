"""Observations of remoting requests.

Topic and group come from the request table for all codes; `_READERS` lists the codes whose bodies and properties are
read as well.
"""

import struct
import time
from collections.abc import Callable
from typing import Final

from proxy.core.build import build_kind
from proxy.core.context import Context
from proxy.core.events import MAX_NAME_LENGTH, UNKNOWN_CODE, Observation
from remoting import properties
from remoting.batch_ack import BatchAckBody
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, Overloaded
from remoting.messages import word
from remoting.names import RETRY_PREFIX
from remoting.requests import POPS, PULLS, RECEIVES, SEND_FIELD_NAMES

_COMPILED: Final = build_kind() == "compiled"
_SUCCESS: Final = int(ResponseCode.SUCCESS)
# Codes that are no errors: they report success, or that nothing was found.
_OK: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.POLLING_TIMEOUT,
    }
)
# In a stored record: its size, the offset of its sys flag, and the offset of its reconsume times, which depends on the
# sizes of the hosts in the sys flag.
_SYS_FLAG: Final = 36
_RECONSUME_TIMES: Final = (72, 84, 84, 96)
_MAX_TIMES: Final = 2**31 - 1
_unpack_word: Final = struct.Struct(">I").unpack_from
# Maximum digits of a parsed number: milliseconds of that many seconds fit into 64 bits.
_MAX_DIGITS: Final = 15
# Milliseconds of the delay levels 1 to 18, as in the brokers' default configuration.
_DELAY_LEVELS_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


def is_ok(response: int) -> bool:
    """Return whether a response code is no error."""
    return response in _OK


def of_request(context: Context, response: int, reply: RemotingCommand | None, now: float) -> Observation:
    """Return the observation of a request that ended at `now` with this response code.

    `reply` is None for oneway requests and errors. `now` is in seconds of `time.monotonic`.
    """
    channel, spec, command = context.channel, context.spec, context.command
    session = channel.session
    if not session.language:
        # Replaced by the first heartbeat's; some clients send other requests before it.
        session.language, session.version = command.language, command.version
    started = context.started
    ok = response in _OK
    name = UNKNOWN_CODE if spec is None else spec.name
    observation = Observation("remoting", name, response, ok, channel.peer, channel, started, now - started)
    observation.bytes_in = context.size
    if context.sent is not None:
        observation.broker_seconds = now - context.sent
        observation.broker = context.broker
    if reply is not None:
        observation.bytes_out = len(reply.body)
    observation.trace_id = command.trace_id
    if spec is None:
        return observation
    code, fields = context.code, context.fields
    if spec.topic is not None and (topic := fields.get(spec.topic)) is not None:
        observation.topic = topic if len(topic) <= MAX_NAME_LENGTH else topic[:MAX_NAME_LENGTH]
    if spec.group is not None and (group := fields.get(spec.group)) is not None:
        observation.group = group if len(group) <= MAX_NAME_LENGTH else group[:MAX_NAME_LENGTH]
    details = _DETAILS.get(code)
    if details is not None:
        observation.defer(details, context)
    if code in _ONE_MESSAGE:
        observation.messages = 1
    else:
        read = _READERS.get(code)
        if read is not None:
            read(observation, context, reply)
    if not ok and response not in STORED:
        observation.messages = 0
    return observation


def _read_batch(observation: Observation, context: Context, _: RemotingCommand | None) -> None:
    observation.messages = count(context.command.body)


def _read_pull(observation: Observation, context: Context, reply: RemotingCommand | None) -> None:
    if reply is not None and observation.response == _SUCCESS:
        observation.messages = count(reply.body)
        # A pulling consumer's retries come from its retry topic; other topics deliver for the first time.
        if observation.topic is not None and observation.topic.startswith(RETRY_PREFIX):
            observation.attempt = attempt(reply.body)
        elif observation.messages:
            observation.attempt = 1


def _read_pop(observation: Observation, context: Context, reply: RemotingCommand | None) -> None:
    if reply is not None and observation.response == _SUCCESS:
        # A pop also returns messages of the retry topic.
        observation.messages = count(reply.body)
        observation.attempt = attempt(reply.body)
        if (order := reply.fields.get("orderCountInfo")) and observation.attempt is not None:
            # Messages popped in order are not stored again: the reply has their numbers of earlier deliveries.
            observation.attempt = max(observation.attempt, _ordered_attempt(order))


def _ordered_attempt(order: str) -> int:
    """Return the highest delivery attempt in `orderCountInfo`: items of three fields, for lite topics also of one."""
    counts = [item.rsplit(" ", 1)[-1] for item in order.split(";")]
    return 1 + max((int(count) for count in counts if count.isdecimal() and len(count) <= _MAX_DIGITS), default=0)


def _read_batch_ack(observation: Observation, context: Context, _: RemotingCommand | None) -> None:
    try:
        body = BatchAckBody.decode(context.command.body)
    except (BodyError, Overloaded):
        return
    for ack in body.acks:
        observation.topic, observation.group = ack.topic[:MAX_NAME_LENGTH], ack.consumer_group[:MAX_NAME_LENGTH]
        observation.messages += ack.bits.bit_count()


# The codes whose replies or bodies have the number of messages.
_READERS: Final[dict[int, Callable[[Observation, Context, RemotingCommand | None], None]]] = {
    RequestCode.SEND_BATCH_MESSAGE: _read_batch,
    **dict.fromkeys(PULLS, _read_pull),
    **dict.fromkeys(POPS, _read_pop),
    RequestCode.PEEK_MESSAGE: _read_pull,
    RequestCode.BATCH_ACK_MESSAGE: _read_batch_ack,
}
# The codes of requests that are about one message.
_ONE_MESSAGE: Final = frozenset(
    map(
        int,
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        ),
    )
)


# Queue, key and delay: read only if an observer asks for them.


def _read_sent(observation: Observation, context: Context) -> None:
    """Read queue, key and delay of a sent message."""
    names = SEND_FIELD_NAMES[context.code]
    _set_queue(observation, context.fields.get(names.queue_id))
    text = context.fields.get(names.properties, "")
    key: str | None = None
    if properties.KEYS in text:
        keys = properties.get(text, properties.KEYS)
        key = keys.split(" ", 1)[0] if keys else None
    if key is None and properties.SHARDING_KEY in text:
        key = properties.get(text, properties.SHARDING_KEY)
    observation.key = None if key is None else key[:MAX_NAME_LENGTH]
    if "DELAY" in text or properties.TIMER_DELIVER_MS in text:
        observation.delay_ms = delay(text)


def _read_sent_queue(observation: Observation, context: Context) -> None:
    _set_queue(observation, context.fields.get(SEND_FIELD_NAMES[context.code].queue_id))


def _read_queue(observation: Observation, context: Context) -> None:
    _set_queue(observation, context.fields.get("queueId"))


def _set_queue(observation: Observation, text: str | None) -> None:
    # A negative id stands for any queue.
    if text is not None and text.isdecimal() and len(text) < 10:
        observation.queue = int(text)


_DETAILS: Final[dict[int, Callable[[Observation, Context], None]]] = {
    RequestCode.SEND_MESSAGE: _read_sent,
    RequestCode.SEND_MESSAGE_V2: _read_sent,
    RequestCode.SEND_REPLY_MESSAGE: _read_sent,
    RequestCode.SEND_REPLY_MESSAGE_V2: _read_sent,
    RequestCode.SEND_BATCH_MESSAGE: _read_sent_queue,
    RequestCode.CONSUMER_SEND_MSG_BACK: _read_queue,
    **dict.fromkeys(RECEIVES, _read_queue),
    RequestCode.ACK_MESSAGE: _read_queue,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _read_queue,
    RequestCode.QUERY_CONSUMER_OFFSET: _read_queue,
    RequestCode.UPDATE_CONSUMER_OFFSET: _read_queue,
    RequestCode.GET_MAX_OFFSET: _read_queue,
    RequestCode.GET_MIN_OFFSET: _read_queue,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _read_queue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _read_queue,
}


def delay(text: str) -> int | None:
    """Return the delivery delay in ms that the properties request; None without one or if it is invalid."""
    for name, unit in ((properties.TIMER_DELAY_MS, 1), (properties.TIMER_DELAY_SEC, 1000)):
        value = _number(properties.get(text, name))
        if value is not None:
            return value * unit
    due = _number(properties.get(text, properties.TIMER_DELIVER_MS))
    if due is not None:
        return max(due - int(time.time() * 1000), 0)
    level = _number(properties.get(text, properties.DELAY_TIME_LEVEL))
    return None if not level else _DELAY_LEVELS_MS[min(level, len(_DELAY_LEVELS_MS)) - 1]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def count(body: bytes) -> int:
    """Return the number of records in a body: stored messages or those of a batch; each begins with its size."""
    records, position, end, compiled = 0, 0, len(body), _COMPILED
    last = end - 4
    while position <= last:
        # Compiled, `word` takes an eighth of the time of `struct`; interpreted, twice as long.
        size: int = word(body, position) if compiled else _unpack_word(body, position)[0]
        # A negative size is read as a very large one.
        if size < 4:
            return records
        position += size
        records += 1
    # The last record may be truncated.
    return records - (position > end)


def attempt(body: bytes) -> int | None:
    """Return the highest delivery attempt among stored records; None without records."""
    highest = -1
    position, end = 0, len(body)
    try:
        while position < end:
            size = word(body, position)
            flag = body[position + _SYS_FLAG + 3]
            times = word(body, position + _RECONSUME_TIMES[flag >> 4 & 0b11])
            if size == 0:
                break
            if highest < times <= _MAX_TIMES:
                highest = times
            position += size
    except IndexError:
        # The body is truncated, which the client will report.
        pass
    return None if highest < 0 else highest + 1

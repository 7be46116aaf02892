"""POP_MESSAGE: handing out messages for a time (RocketMQ's PopMessageProcessor)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from proxy.embedded.broker import names
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.fifo_locks import Order
from proxy.embedded.broker.filters import Filter, build
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.long_polls import Held
from proxy.embedded.broker.pop_checkpoints import Checkpoint
from proxy.embedded.broker.pulling import consuming_group, readable_topic
from proxy.embedded.broker.queues import Fetched, Status, fetch
from proxy.embedded.broker.request import Answer, Refused, Request, refusal
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting import messages, pop, pop_offset_info, properties
from remoting.codes import ResponseCode
from remoting.errors import BodyError, InvalidRequest
from remoting.names import RETRY_PREFIX
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry, retry_of
from remoting.properties import MessageType

_MAX = 32
# A pop that arrives so late (ms) is not worth its answer.
_LATE = 500
# So long (ms) before its time is up a waiting request is answered.
_AHEAD = 50
_REVIVE_QUEUES = 8
# initMode of a group that is new to a queue: from its first message on.
_FROM_FIRST = 0
_MOVED = frozenset((Status.OFFSET_TOO_SMALL, Status.OFFSET_OVERFLOW_BADLY, Status.MESSAGE_WAS_REMOVING))
_PASSED = frozenset((Status.NO_MATCHED_MESSAGE, Status.MESSAGE_WAS_REMOVING, Status.NO_MATCHED_LOGIC_QUEUE))


@dataclass(slots=True)
class _Pop:
    """One pop under way: what it asked for, and what it has taken so far. rest: what is left behind it."""

    request: Request
    topic: Topic
    group: Group
    count: int
    invisible_time: int
    first: bool
    order: bool
    attempt_id: str | None
    wanted: Filter | None
    revive_queue_id: int
    time: int
    rest: int = 0
    records: list[bytes] = field(default_factory=list)
    starts: dict[tuple[Retry, int], int] = field(default_factory=dict)
    offsets: dict[tuple[Retry, int], list[int]] = field(default_factory=dict)
    counts: dict[tuple[Retry, int, int | None], int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.records) >= self.count


def pop_messages(broker: Broker, request: Request) -> Answer:
    """Messages that are this client's for a while; waits for one where there is none."""
    born = request.born
    wait = request.number("pollTime")
    if born + wait + _LATE < request.now:
        raise Refused(ResponseCode.POLLING_TIMEOUT, "the pop comes too late")
    count = request.number("maxMsgNums")
    if count > _MAX:
        raise InvalidRequest(f"a pop hands out at most {_MAX} messages, not {count}")
    topic = readable_topic(broker, request)
    queue_id = request.number("queueId")
    if queue_id >= topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, not one of id {queue_id}")
    group = consuming_group(broker, request)
    order = request.flag("order")
    taken = _Pop(
        request,
        topic,
        group,
        count,
        request.number("invisibleTime"),
        request.number("initMode", _FROM_FIRST) == _FROM_FIRST,
        order,
        request.fields.get("attemptId"),
        _filter(request),
        pop.ORDER_REVIVE_QUEUE if order else broker.random.randrange(_REVIVE_QUEUES),
        request.now,
    )
    _take(broker, taken, queue_id)
    if taken.records:
        broker.counts["got"] += len(taken.records)
        if taken.rest > 0:
            broker.rouse(topic.name, group.name, queue_id)
        return broker.durable(commands.response(0, _fields(taken), b"".join(taken.records), Status.FOUND))
    return _wait(broker, taken, queue_id, born + wait, wait)


def _filter(request: Request) -> Filter | None:
    expression = request.fields.get("exp")
    if not expression:
        return None
    try:
        return build(expression, request.fields.get("expType"))
    except BodyError as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _wait(broker: Broker, taken: _Pop, queue_id: int, until: int, wait: int) -> Answer:
    key = (taken.topic.name, taken.group.name, queue_id)
    code = ResponseCode.POLLING_TIMEOUT
    if wait > 0 and taken.request.now <= until - _AHEAD:
        if broker.room(key):
            held = Held(taken.request, until - _AHEAD, broker.future(), code, taken.wanted)
            broker.pops.add(key, held)
            if taken.rest > 0:
                # There is more than one look can take in: the next one comes soon.
                broker.look_again(key)
            return held.reply
        code = ResponseCode.POLLING_FULL
    return refusal(code, Status.NO_MESSAGE_IN_QUEUE, _fields(taken))


def _fields(taken: _Pop) -> dict[str, str]:
    fields = {
        "popTime": str(taken.time),
        "invisibleTime": str(taken.invisible_time),
        "reviveQid": str(taken.revive_queue_id),
        "restNum": str(taken.rest),
        "startOffsetInfo": pop_offset_info.format_start_offset_info(taken.starts),
        "msgOffsetInfo": pop_offset_info.format_msg_offset_info(taken.offsets),
    }
    if taken.order:
        fields["orderCountInfo"] = pop_offset_info.format_order_count_info(taken.counts)
    return fields


# Taking.


def _take(broker: Broker, taken: _Pop, queue_id: int) -> None:
    chance = broker.random.randrange(100)
    prioritized = taken.topic.kind == MessageType.PRIORITY and not taken.order and chance < taken.group.priority_factor
    retry_first = chance < (0 if prioritized else broker.settings.retry_probability)
    # With priorities, the queues are looked at from the last, the most urgent one, on.
    turn = 0 if prioritized else chance
    if retry_first:
        _take_retries(broker, taken, turn)
    if queue_id < 0:
        _take_topic(broker, taken, taken.topic, turn)
    else:
        _take_queue(broker, taken, taken.topic, queue_id)
    if not retry_first and not taken.full:
        _take_retries(broker, taken, turn)


def _take_retries(broker: Broker, taken: _Pop, turn: int) -> None:
    if not taken.order:
        for topic in retry_topics(broker, taken.topic.name, taken.group.name):
            _take_topic(broker, taken, topic, turn)


def retry_topics(broker: Broker, topic: str, group: str) -> Iterable[Topic]:
    """The retry topics of a group that pops, of the old and the new name, as far as they are there."""
    found = (broker.topics.get(names.pop_retry_topic(topic, group, v2)) for v2 in (False, True))
    return [topic for topic in found if topic is not None]


def _take_topic(broker: Broker, taken: _Pop, topic: Topic, turn: int) -> None:
    for index in range(topic.read):
        _take_queue(broker, taken, topic, (topic.read - 1 - index + turn) % topic.read)


def _take_queue(broker: Broker, taken: _Pop, topic: Topic, queue_id: int) -> None:
    key = (topic.name, taken.group.name, queue_id)
    offset = _offset(broker, taken, topic.name, queue_id)
    if taken.order and broker.orders.blocked(key, taken.attempt_id, taken.time):
        return
    if taken.full:
        taken.rest += max(broker.store.bounds(topic.name, queue_id)[1] - offset, 0)
        return
    found = fetch(broker.store, topic.name, queue_id, offset, taken.count - len(taken.records), taken.wanted)
    if found.status in _MOVED:
        offset = found.next_offset
        broker.offsets.commit(topic.name, taken.group.name, queue_id, offset)
        found = fetch(broker.store, topic.name, queue_id, offset, taken.count - len(taken.records), taken.wanted)
    taken.rest += max(found.most - found.next_offset, 0)
    if found.records:
        if taken.order:
            _hand_out_in_order(broker, taken, topic.name, queue_id, offset, found)
        else:
            _hand_out(broker, taken, topic.name, queue_id, offset, found)
    elif found.status in _PASSED:
        broker.offsets.commit(topic.name, taken.group.name, queue_id, found.next_offset)


def _offset(broker: Broker, taken: _Pop, topic: str, queue_id: int) -> int:
    """Where a group goes on; a new group's start is kept."""
    group = taken.group.name
    reset = broker.offsets.take_reset(topic, group, queue_id)
    if reset is not None:
        broker.orders.clear((topic, group, queue_id))
        broker.offsets.commit(topic, group, queue_id, reset)
        return reset
    offset = broker.offsets.get(topic, group, queue_id)
    if offset >= 0:
        return offset
    least, most = broker.store.bounds(topic, queue_id)
    # A queue that is still young is consumed from its start, whatever the client says.
    from_start = taken.first or topic.startswith(RETRY_PREFIX) or least <= 0 < most
    offset = least if from_start else max(most - 1, 0)
    broker.offsets.commit(topic, group, queue_id, offset)
    return offset


def _hand_out(broker: Broker, taken: _Pop, topic: str, queue_id: int, offset: int, found: Fetched) -> None:
    group = taken.group.name
    point = Checkpoint(
        topic, group, queue_id, offset, taken.time, taken.time + taken.invisible_time, tuple(found.offsets)
    )
    with broker.store.transaction():
        broker.checkpoints.write(point)
        broker.offsets.write(topic, group, queue_id, found.next_offset)
    broker.checkpoints.note(point)
    broker.offsets.note(topic, group, queue_id, found.next_offset)
    _add(broker, taken, topic, queue_id, offset, found)


def _hand_out_in_order(broker: Broker, taken: _Pop, topic: str, queue_id: int, offset: int, found: Fetched) -> None:
    group = taken.group.name
    key = (topic, group, queue_id)
    order = broker.orders.popped(key, taken.attempt_id, taken.time, taken.invisible_time, found.offsets)
    with broker.store.transaction():
        broker.orders.write(key, order)
        broker.offsets.write(topic, group, queue_id, offset)
    broker.orders.note(key, order)
    broker.offsets.note(topic, group, queue_id, offset)
    broker.unlock_at(order.free_at(), key)
    _count(taken, topic, queue_id, order)
    _add(broker, taken, topic, queue_id, offset, found)


def _count(taken: _Pop, topic: str, queue_id: int, order: Order) -> None:
    retry = retry_of(topic)
    for offset, count in order.counts.items():
        taken.counts[retry, queue_id, offset] = count
    least = min(order.counts.values(), default=0) if len(order.counts) == len(order.offsets) else 0
    taken.counts[retry, queue_id, None] = least


def _add(broker: Broker, taken: _Pop, topic: str, queue_id: int, offset: int, found: Fetched) -> None:
    key = (retry_of(topic), queue_id)
    taken.starts[key] = offset
    taken.offsets[key] = found.offsets
    if key[0] is Retry.NORMAL:
        taken.records += found.records
        return
    for record in found.records:
        taken.records.append(_as_asked(broker, taken, key[0], offset, record))


def _as_asked(broker: Broker, taken: _Pop, retry: Retry, offset: int, record: bytes) -> bytes:
    """A message of the retry topic as one of the topic that was asked for; its handle says where it is."""
    message = messages.decode_message(record)
    handle = ExtraInfo(
        offset,
        taken.time,
        taken.invisible_time,
        taken.revive_queue_id,
        retry,
        broker.settings.name,
        message.queue_id,
        message.queue_offset,
    )
    text = message.properties
    if message.get(properties.POP_CK) is None:
        text = properties.append(text, properties.POP_CK, str(handle))
    return messages.encode_message(replace(message, topic=taken.topic.name, properties=text))

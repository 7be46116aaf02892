"""Handler of POP_MESSAGE: messages that become invisible to others for a time (RocketMQ's PopMessageProcessor)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused, refusal
from proxy.embedded.broker.fifo_locks import FifoLock
from proxy.embedded.broker.filters import Filter, SqlFilter, new_filter
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.long_polls import LongPoll
from proxy.embedded.broker.pop_checkpoints import Checkpoint
from proxy.embedded.broker.pulling import consuming_group, readable_topic
from proxy.embedded.broker.queues import READ_SIZE, Fetched, Status, fetch
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.source_share import has_place
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting import messages, pop, pop_offset_info, properties
from remoting.codes import ResponseCode
from remoting.errors import BodyError, InvalidRequest
from remoting.names import RETRY_PREFIX, pop_retry_topic
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry, retry_of
from remoting.properties import MessageType

_MAX_MESSAGES = 32
# Pops of a group in a topic with messages that are neither acknowledged nor visible again: each is kept in memory, and
# clients choose how long.
MAX_UNACKNOWLEDGED = 100_000
# The same of all groups, of which each has a share: clients may use any number of groups.
MAX_CHECKPOINTS = 500_000
# Milliseconds after its deadline at which a pop is rejected.
_MAX_DELAY = 500
# Milliseconds before its deadline at which a waiting request is answered.
_RESPONSE_MARGIN = 50
_REVIVE_QUEUES = 8
# The initMode with which a group that is new to a queue begins at its first message.
_FROM_FIRST = 0
_OUT_OF_BOUNDS = frozenset((Status.OFFSET_TOO_SMALL, Status.OFFSET_OVERFLOW_BADLY, Status.MESSAGE_WAS_REMOVING))
_NOTHING_TO_DELIVER = frozenset((Status.NO_MATCHED_MESSAGE, Status.MESSAGE_WAS_REMOVING, Status.NO_MATCHED_LOGIC_QUEUE))


@dataclass(slots=True)
class _PopState:
    """One pop in progress: its parameters, and the messages state so far. remaining: number of messages after them.

    effort: share of the effort of one read that messages without a match took, of all queues together.
    """

    request: Request
    topic: Topic
    group: Group
    count: int
    invisible_time: int
    from_first: bool
    order: bool
    attempt_id: str | None
    filter: Filter | None
    revive_queue_id: int
    time: int
    remaining: int = 0
    effort: float = 0.0
    records: list[bytes] = field(default_factory=list)
    starts: dict[tuple[Retry, int], int] = field(default_factory=dict)
    offsets: dict[tuple[Retry, int], list[int]] = field(default_factory=dict)
    counts: dict[tuple[Retry, int, int | None], int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.records) >= self.count or self.room <= 0 or self.effort >= 1

    @property
    def room(self) -> int:
        """Bytes of messages that the response may still take."""
        return READ_SIZE - sum(map(len, self.records))


def pop_messages(broker: Broker, request: Request) -> Answer:
    """POP_MESSAGE: return messages that become invisible to other clients for a time; wait for one."""
    sent_at = request.sent_at
    wait = request.number("pollTime")
    if sent_at + wait + _MAX_DELAY < request.now:
        raise Refused(ResponseCode.POLLING_TIMEOUT, "the pop arrived after its deadline")
    count = request.number("maxMsgNums")
    if count > _MAX_MESSAGES:
        raise InvalidRequest(f"a pop returns at most {_MAX_MESSAGES} messages, not {count}")
    topic = readable_topic(broker, request)
    queue_id = request.number("queueId")
    if queue_id >= topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, but not queue {queue_id}")
    group = consuming_group(broker, request)
    broker.offsets.check_room(topic.name, group.name)
    _check_unacknowledged(broker, topic.name, group.name)
    order = request.flag("order")
    state = _PopState(
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
    _take(broker, state, queue_id)
    if state.records:
        if state.remaining > 0:
            broker.waking.wake((topic.name, group.name, queue_id))
        return broker.when_durable(commands.response(0, _fields(state), b"".join(state.records), Status.FOUND))
    return _wait(broker, state, queue_id, sent_at + wait, wait)


def _check_unacknowledged(broker: Broker, topic: str, group: str) -> None:
    """Refuse a pop of a group with too many pops without acknowledgement in a topic and in its retry topics.

    If all groups have many, those with the most are refused first.
    """
    retries = (pop_retry_topic(topic, group, v2) for v2 in (False, True))
    count = sum(broker.checkpoints.count(name, group) for name in (topic, *retries))
    if count >= MAX_UNACKNOWLEDGED:
        text = f"the group {group} has {count} pops without acknowledgement in {topic}, which is the maximum"
        raise Refused(ResponseCode.POLLING_FULL, text)
    own, total = broker.checkpoints.count_of_group(group), len(broker.checkpoints)
    if not has_place(own, total, MAX_CHECKPOINTS):
        text = f"{total} pops of all groups are without acknowledgement, {own} of the group {group}"
        raise Refused(ResponseCode.POLLING_FULL, text)


def _filter(request: Request) -> Filter | None:
    expression = request.fields.get("exp")
    if not expression:
        return None
    try:
        return new_filter(expression, request.fields.get("expType"))
    except BodyError as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _wait(broker: Broker, state: _PopState, queue_id: int, deadline: int, wait: int) -> Answer:
    key = (state.topic.name, state.group.name, queue_id)
    code = ResponseCode.POLLING_TIMEOUT
    if wait > 0 and state.request.now < deadline - _RESPONSE_MARGIN:
        if broker.admit_poll(key, state.request.channel):
            reply = state.request.reply or broker.future()
            poll = LongPoll(state.request, deadline - _RESPONSE_MARGIN, reply, code, state.filter)
            broker.waiting_pops.add(key, poll)
            if state.remaining > 0:
                # A read does not examine all messages: the next tick continues.
                broker.waking.wake_at_next_tick(key)
            return reply
        code = ResponseCode.POLLING_FULL
    return refusal(code, Status.NO_MESSAGE_IN_QUEUE, _fields(state))


def _fields(state: _PopState) -> dict[str, str]:
    fields = {
        "popTime": str(state.time),
        "invisibleTime": str(state.invisible_time),
        "reviveQid": str(state.revive_queue_id),
        "restNum": str(state.remaining),
        "startOffsetInfo": pop_offset_info.format_start_offset_info(state.starts),
        "msgOffsetInfo": pop_offset_info.format_msg_offset_info(state.offsets),
    }
    if state.order:
        fields["orderCountInfo"] = pop_offset_info.format_order_count_info(state.counts)
    return fields


# Taking.


def _take(broker: Broker, state: _PopState, queue_id: int) -> None:
    chance = broker.random.randrange(100)
    prioritized = state.topic.kind == MessageType.PRIORITY and not state.order and chance < state.group.priority_factor
    retry_first = chance < (0 if prioritized else broker.settings.retry_probability)
    # With priorities, the queues are read from the last one on, which is the most urgent.
    turn = 0 if prioritized else chance
    if retry_first:
        _take_retries(broker, state, turn)
    if queue_id < 0:
        _take_topic(broker, state, state.topic, turn)
    else:
        _take_queue(broker, state, state.topic, queue_id)
    if not retry_first and not state.full:
        _take_retries(broker, state, turn)


def _take_retries(broker: Broker, state: _PopState, turn: int) -> None:
    if not state.order:
        for topic in retry_topics(broker, state.topic.name, state.group.name):
            _take_topic(broker, state, topic, turn)


def retry_topics(broker: Broker, topic: str, group: str) -> Iterable[Topic]:
    """Return the existing retry topics of a popping group, of both versions."""
    topics = (broker.topics.get(pop_retry_topic(topic, group, v2)) for v2 in (False, True))
    return [topic for topic in topics if topic is not None]


def _take_topic(broker: Broker, state: _PopState, topic: Topic, turn: int) -> None:
    for index in range(topic.read):
        _take_queue(broker, state, topic, (topic.read - 1 - index + turn) % topic.read)


def _take_queue(broker: Broker, state: _PopState, topic: Topic, queue_id: int) -> None:
    key = (topic.name, state.group.name, queue_id)
    offset = _offset(broker, state, topic.name, queue_id)
    if state.order and broker.fifo_locks.blocked(key, state.attempt_id, state.time):
        return
    if state.full:
        state.remaining += max(broker.store.bounds(topic.name, queue_id)[1] - offset, 0)
        return
    fetched = _fetch(broker, state, topic.name, queue_id, offset)
    if fetched.status in _OUT_OF_BOUNDS:
        offset = fetched.next_offset
        broker.offsets.commit(topic.name, state.group.name, queue_id, offset)
        fetched = _fetch(broker, state, topic.name, queue_id, offset)
    state.remaining += max(fetched.max_offset - fetched.next_offset, 0)
    if fetched.records:
        if state.order:
            _deliver_in_order(broker, state, topic.name, queue_id, offset, fetched)
        else:
            _deliver(broker, state, topic.name, queue_id, offset, fetched)
    elif fetched.status in _NOTHING_TO_DELIVER:
        broker.offsets.commit(topic.name, state.group.name, queue_id, fetched.next_offset)


def _fetch(broker: Broker, state: _PopState, topic: str, queue_id: int, offset: int) -> Fetched:
    count = state.count - len(state.records)
    fetched = fetch(broker.store, topic, queue_id, offset, count, state.filter, state.room, state.effort)
    if isinstance(state.filter, SqlFilter):
        # Tags are looked up in an index.
        state.effort += fetched.effort
    return fetched


def _offset(broker: Broker, state: _PopState, topic: str, queue_id: int) -> int:
    """Return the offset at which a group continues; store that of a new group."""
    group = state.group.name
    reset = broker.offsets.take_reset(topic, group, queue_id)
    if reset is not None:
        broker.fifo_locks.clear((topic, group, queue_id))
        broker.offsets.commit(topic, group, queue_id, reset)
        return reset
    offset = broker.offsets.get(topic, group, queue_id)
    if offset >= 0:
        return offset
    first, end = broker.store.bounds(topic, queue_id)
    # A queue that still has its first message is consumed from its start, regardless of the initMode.
    from_start = state.from_first or topic.startswith(RETRY_PREFIX) or first <= 0 < end
    offset = first if from_start else max(end - 1, 0)
    broker.offsets.commit(topic, group, queue_id, offset)
    return offset


def _deliver(broker: Broker, state: _PopState, topic: str, queue_id: int, offset: int, fetched: Fetched) -> None:
    group = state.group.name
    checkpoint = Checkpoint(
        topic, group, queue_id, offset, state.time, state.time + state.invisible_time, tuple(fetched.offsets)
    )
    with broker.store.transaction():
        broker.checkpoints.put(checkpoint)
        broker.offsets.commit(topic, group, queue_id, fetched.next_offset)
    _add(broker, state, topic, queue_id, offset, fetched)


def _deliver_in_order(
    broker: Broker, state: _PopState, topic: str, queue_id: int, offset: int, fetched: Fetched
) -> None:
    group = state.group.name
    key = (topic, group, queue_id)
    lock = broker.fifo_locks.new_lock(key, state.attempt_id, state.time, state.invisible_time, fetched.offsets)
    with broker.store.transaction():
        broker.fifo_locks.put(key, lock)
        broker.offsets.commit(topic, group, queue_id, offset)
    broker.unlock_at(lock.free_at(), key)
    _count(state, topic, queue_id, lock)
    _add(broker, state, topic, queue_id, offset, fetched)


def _count(state: _PopState, topic: str, queue_id: int, lock: FifoLock) -> None:
    retry = retry_of(topic)
    for offset, count in lock.counts.items():
        state.counts[retry, queue_id, offset] = count
    least = min(lock.counts.values(), default=0) if len(lock.counts) == len(lock.offsets) else 0
    state.counts[retry, queue_id, None] = least


def _add(broker: Broker, state: _PopState, topic: str, queue_id: int, offset: int, fetched: Fetched) -> None:
    broker.statistics.add_delivered(topic, state.group.name, fetched.records, state.time)
    key = (retry_of(topic), queue_id)
    state.starts[key] = offset
    state.offsets[key] = fetched.offsets
    if key[0] is Retry.NORMAL:
        state.records += fetched.records
        return
    for record in fetched.records:
        state.records.append(_of_popped_topic(broker, state, key[0], offset, record))


def _of_popped_topic(broker: Broker, state: _PopState, retry: Retry, offset: int, record: bytes) -> bytes:
    """Return a message of the retry topic as one of the popped topic; its receipt handle contains its place."""
    message = messages.decode_message(record)
    handle = ExtraInfo(
        offset,
        state.time,
        state.invisible_time,
        state.revive_queue_id,
        retry,
        broker.settings.name,
        message.queue_id,
        message.queue_offset,
    )
    text = message.properties
    if message.get(properties.POP_CK) is None:
        text = properties.append(text, properties.POP_CK, str(handle))
    return messages.encode_message(replace(message, topic=state.topic.name, properties=text))

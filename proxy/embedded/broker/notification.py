"""NOTIFICATION, POLLING_INFO and PEEK_MESSAGE: is there something to pop, who waits, what would come."""

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.long_polls import Held
from proxy.embedded.broker.popping import retry_topics
from proxy.embedded.broker.pulling import consuming_group, readable_topic
from proxy.embedded.broker.queues import Status, fetch
from proxy.embedded.broker.request import Answer, Request, refusal, yes
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest

# So long (ms) before its time is up a waiting request is answered.
_AHEAD = 50


def _queue(request: Request, topic: Topic) -> int:
    queue_id = request.number("queueId")
    if queue_id >= topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, not one of id {queue_id}")
    return queue_id


def notify(broker: Broker, request: Request) -> Answer:
    """Whether there is a message to pop; waits for one."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    queue_id, wait = _queue(request, topic), request.number("pollTime")
    if _has_message(broker, request, topic, group.name, queue_id):
        return commands.success({"hasMsg": "true", "pollingFull": "false"})
    until, key = request.born + wait - _AHEAD, (topic.name, group.name, queue_id)
    room = broker.room(key)
    if wait > 0 and request.now <= until and room:
        held = Held(request, until, broker.future(), ResponseCode.SUCCESS)
        broker.notices.add(key, held)
        return held.reply
    return commands.success({"hasMsg": "false", "pollingFull": yes(not room)})


def _has_message(broker: Broker, request: Request, topic: Topic, group: str, queue_id: int) -> bool:
    queues = [queue_id] if queue_id >= 0 else range(topic.read)
    order, attempt_id = request.flag("order"), request.fields.get("attemptId")
    for number in queues:
        if order and broker.orders.blocked((topic.name, group, number), attempt_id, request.now):
            continue
        if _rest(broker, topic.name, group, number) > 0:
            return True
    retries = retry_topics(broker, topic.name, group)
    return any(_rest(broker, retry.name, group, number) > 0 for retry in retries for number in range(retry.read))


def _rest(broker: Broker, topic: str, group: str, queue_id: int) -> int:
    return broker.store.bounds(topic, queue_id)[1] - _offset(broker, topic, group, queue_id)


def _offset(broker: Broker, topic: str, group: str, queue_id: int) -> int:
    offset = broker.offsets.get(topic, group, queue_id)
    return offset if offset >= 0 else broker.store.bounds(topic, queue_id)[0]


def polling_info(broker: Broker, request: Request) -> Answer:
    """How many pops wait for a queue."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    count = broker.pops.count((topic.name, group.name, _queue(request, topic)))
    return commands.success({"pollingNum": str(count)})


def peek(broker: Broker, request: Request) -> Answer:
    """Messages that a pop would hand out, without taking them."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    queue_id, count = _queue(request, topic), request.number("maxMsgNums")
    if count > 32:
        raise InvalidRequest(f"a peek shows at most 32 messages, not {count}")
    queues = [(topic.name, number) for number in ([queue_id] if queue_id >= 0 else range(topic.read))]
    queues += [(retry.name, n) for retry in retry_topics(broker, topic.name, group.name) for n in range(retry.read)]
    records: list[bytes] = []
    rest = 0
    for name, number in queues:
        offset = _offset(broker, name, group.name, number)
        rest += _rest(broker, name, group.name, number)
        if len(records) < count:
            found = fetch(broker.store, name, number, offset, count - len(records), None)
            if found.status in {Status.OFFSET_TOO_SMALL, Status.OFFSET_OVERFLOW_BADLY}:
                found = fetch(broker.store, name, number, found.next_offset, count - len(records), None)
            records += found.records
    # A look is no handing out: there is no handle, but its zeros are told.
    fields = {"restNum": str(rest), "popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    if not records:
        return refusal(ResponseCode.PULL_NOT_FOUND, Status.NO_MESSAGE_IN_QUEUE, fields)
    return commands.response(ResponseCode.SUCCESS, fields, b"".join(records), Status.FOUND)

"""Handlers of NOTIFICATION, POLLING_INFO and PEEK_MESSAGE."""

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import refusal
from proxy.embedded.broker.long_polls import LongPoll
from proxy.embedded.broker.popping import retry_topics
from proxy.embedded.broker.pulling import consuming_group, readable_topic
from proxy.embedded.broker.queues import READ_SIZE, Status, fetch
from proxy.embedded.broker.request import Answer, Request, java_bool
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest

# Milliseconds before its deadline at which a waiting request is answered.
_RESPONSE_MARGIN = 50


def _queue(request: Request, topic: Topic) -> int:
    queue_id = request.number("queueId")
    if queue_id >= topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, but not queue {queue_id}")
    return queue_id


def notify(broker: Broker, request: Request) -> Answer:
    """NOTIFICATION: return whether there is a message to pop; wait for one."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    queue_id, wait = _queue(request, topic), request.number("pollTime")
    if _has_message(broker, request, topic, group.name, queue_id):
        return commands.success({"hasMsg": "true", "pollingFull": "false"})
    deadline, key = request.sent_at + wait - _RESPONSE_MARGIN, (topic.name, group.name, queue_id)
    admitted = broker.admit_poll(key, request.channel)
    if wait > 0 and request.now < deadline and admitted:
        poll = LongPoll(request, deadline, request.reply or broker.future(), ResponseCode.SUCCESS)
        broker.waiting_notifications.add(key, poll)
        return poll.reply
    return commands.success({"hasMsg": "false", "pollingFull": java_bool(not admitted)})


def _has_message(broker: Broker, request: Request, topic: Topic, group: str, queue_id: int) -> bool:
    queues = [queue_id] if queue_id >= 0 else range(topic.read)
    order, attempt_id = request.flag("order"), request.fields.get("attemptId")
    for number in queues:
        if order and broker.fifo_locks.blocked((topic.name, group, number), attempt_id, request.now):
            continue
        if _remaining(broker, topic.name, group, number) > 0:
            return True
    retries = retry_topics(broker, topic.name, group)
    return any(_remaining(broker, retry.name, group, number) > 0 for retry in retries for number in range(retry.read))


def _remaining(broker: Broker, topic: str, group: str, queue_id: int) -> int:
    return broker.store.bounds(topic, queue_id)[1] - _offset(broker, topic, group, queue_id)


def _offset(broker: Broker, topic: str, group: str, queue_id: int) -> int:
    offset = broker.offsets.get(topic, group, queue_id)
    return offset if offset >= 0 else broker.store.bounds(topic, queue_id)[0]


def polling_info(broker: Broker, request: Request) -> Answer:
    """POLLING_INFO: return the number of pops that wait for a queue."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    count = broker.waiting_pops.count((topic.name, group.name, _queue(request, topic)))
    return commands.success({"pollingNum": str(count)})


def peek(broker: Broker, request: Request) -> Answer:
    """PEEK_MESSAGE: return the messages that a pop would return, without making them invisible."""
    topic, group = readable_topic(broker, request), consuming_group(broker, request)
    queue_id, count = _queue(request, topic), request.number("maxMsgNums")
    if count > 32:
        raise InvalidRequest(f"a peek returns at most 32 messages, not {count}")
    queues = [(topic.name, number) for number in ([queue_id] if queue_id >= 0 else range(topic.read))]
    queues += [(retry.name, n) for retry in retry_topics(broker, topic.name, group.name) for n in range(retry.read)]
    records: list[bytes] = []
    remaining = 0
    for name, number in queues:
        offset = _offset(broker, name, group.name, number)
        remaining += _remaining(broker, name, group.name, number)
        room = READ_SIZE - sum(map(len, records))
        if len(records) < count and room > 0:
            fetched = fetch(broker.store, name, number, offset, count - len(records), None, room)
            if fetched.status in {Status.OFFSET_TOO_SMALL, Status.OFFSET_OVERFLOW_BADLY}:
                fetched = fetch(broker.store, name, number, fetched.next_offset, count - len(records), None, room)
            records += fetched.records
    # There is no receipt handle, but its fields are present with zeros.
    fields = {"restNum": str(remaining), "popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    if not records:
        return refusal(ResponseCode.PULL_NOT_FOUND, Status.NO_MESSAGE_IN_QUEUE, fields)
    return commands.response(ResponseCode.SUCCESS, fields, b"".join(records), Status.FOUND)

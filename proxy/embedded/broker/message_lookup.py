"""Handlers of requests for offsets of queues and groups, and for single messages."""

from typing import Any

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused, refusal
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.queues import READ_SIZE, commit_log_offset, store_timestamp
from proxy.embedded.broker.request import Answer, Request
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest
from remoting.message_query import BY_UNIQUE_ID

_MAX_BY_UNIQUE_KEY = 32
# As in brokers (maxMsgsNumBatch).
_MAX_BY_KEY = 64
# Messages of one answer about a queue.
_MAX_IN_QUEUE = 1000


def _offset(offset: int) -> Answer:
    return commands.success({"offset": str(offset)})


def max_offset(broker: Broker, request: Request) -> Answer:
    """GET_MAX_OFFSET: return the offset one past the last message."""
    return _offset(broker.store.bounds(request.text("topic"), request.number("queueId"))[1])


def min_offset(broker: Broker, request: Request) -> Answer:
    """GET_MIN_OFFSET: return the offset of the first message kept."""
    return _offset(broker.store.bounds(request.text("topic"), request.number("queueId"))[0])


def search(broker: Broker, request: Request) -> Answer:
    """SEARCH_OFFSET_BY_TIMESTAMP: the first message at or after a time (LOWER), or the last at or before it (UPPER)."""
    topic, queue_id, time = request.text("topic"), request.number("queueId"), request.number("timestamp")
    if request.fields.get("boundaryType", "").upper() != "UPPER":
        return _offset(broker.store.offset_at(topic, queue_id, time))
    return _offset(max(broker.store.offset_at(topic, queue_id, time + 1) - 1, 0))


def earliest_store_time(broker: Broker, request: Request) -> Answer:
    """GET_EARLIEST_MSG_STORETIME: return the store timestamp (ms) of the first message kept, -1 without one."""
    topic, queue_id = request.text("topic"), request.number("queueId")
    record = broker.read_one(topic, queue_id, broker.store.bounds(topic, queue_id)[0])
    return commands.success({"timestamp": str(-1 if record is None else store_timestamp(record))})


def query_offset(broker: Broker, request: Request) -> Answer:
    """QUERY_CONSUMER_OFFSET: return a group's offset, 0 for a new group of a queue that still has its first message."""
    group, topic, queue_id = request.text("consumerGroup"), request.text("topic"), request.number("queueId")
    offset = broker.offsets.get(topic, group, queue_id)
    if offset >= 0:
        return _offset(offset)
    first, end = broker.store.bounds(topic, queue_id)
    if request.flag("setZeroIfNotFound", True) and first <= 0 < end:
        return _offset(0)
    return refusal(ResponseCode.QUERY_NOT_FOUND, f"group {group} has no offset in queue {queue_id} of topic {topic}")


def update_offset(broker: Broker, request: Request) -> Answer:
    """UPDATE_CONSUMER_OFFSET."""
    group, topic = request.text("consumerGroup"), request.text("topic")
    queue_id, offset = request.number("queueId"), request.number("commitOffset")
    if broker.groups.get(group) is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {group} does not exist")
    queues = max((known := existing_topic(broker, topic)).read, known.write)
    if not 0 <= queue_id < queues or not 0 <= offset < 2**63:
        raise InvalidRequest(f"queue {queue_id} or offset {offset} is invalid")
    if broker.settings.server_side_reset and broker.offsets.has_reset(topic, group, queue_id):
        return commands.response(
            ResponseCode.SUCCESS, remark="the offset was reset, and the group has not applied the reset yet"
        )
    broker.offsets.check_room(topic, group)
    broker.offsets.commit(topic, group, queue_id, offset)
    return broker.when_durable(commands.success())


def query(broker: Broker, request: Request) -> Answer:
    """QUERY_MESSAGE: return the newest messages by key, in the order in which they were stored."""
    topic, key, count = request.text("topic"), request.text("key"), request.number("maxNum")
    begin, end = request.number("beginTimestamp"), request.number("endTimestamp")
    if request.flag(BY_UNIQUE_ID):
        count = _MAX_BY_UNIQUE_KEY
    records = broker.store.by_key(topic, key, begin, end, min(count, _MAX_BY_KEY), READ_SIZE)
    fields = {
        "indexLastUpdateTimestamp": str(0 if not records else store_timestamp(records[0])),
        "indexLastUpdatePhyoffset": str(0 if not records else commit_log_offset(records[0])),
    }
    if not records:
        return refusal(ResponseCode.QUERY_NOT_FOUND, f"there is no message of topic {topic} with this key", fields)
    # Tools and clients take the first of several copies with a unique key for the message itself.
    return commands.success(fields, b"".join(reversed(records)))


def view(broker: Broker, request: Request) -> Answer:
    """VIEW_MESSAGE_BY_ID: return the message at a commit log offset."""
    offset = request.number("offset")
    record = broker.store.record(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return commands.success(body=record)


def query_queue(broker: Broker, request: Request) -> Answer:
    """QUERY_CONSUME_QUEUE: return the positions, sizes and tag codes of messages from a queue offset on."""
    topic, queue_id, index = request.text("topic"), request.number("queueId"), request.number("index")
    if queue_id not in broker.store.queues(topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    first, end = broker.store.bounds(topic, queue_id)
    body: dict[str, Any] = {"minQueueIndex": first, "maxQueueIndex": end}
    group = request.fields.get("consumerGroup")
    if group:
        current = broker.members.subscription(group, topic)
        body["subscriptionData"] = None if current is None else dict(current.data)
        if current is None:
            body["filterData"] = f"{group}@{topic} is not online!"
    count = min(request.number("count"), _MAX_IN_QUEUE)
    if count > 0 and first <= index < end:
        records = broker.store.read(topic, queue_id, index, count, READ_SIZE)
        codes = broker.store.tag_codes(topic, queue_id, index, len(records))
        body["queueData"] = [
            {"physicOffset": commit_log_offset(record), "physicSize": len(record), "tagsCode": code, "eval": False}
            for record, code in zip(records, codes, strict=True)
        ]
    return commands.success(body=orjson.dumps(body))

"""Questions about queues, offsets and single messages."""

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.queues import store_timestamp
from proxy.embedded.broker.request import Answer, Refused, Request, refusal
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest

_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_MAX_BY_UNIQUE_KEY = 32


def _offset(offset: int) -> Answer:
    return commands.success({"offset": str(offset)})


def greatest(broker: Broker, request: Request) -> Answer:
    """GET_MAX_OFFSET: one past the last message."""
    return _offset(broker.store.bounds(request.text("topic"), request.number("queueId"))[1])


def least(broker: Broker, request: Request) -> Answer:
    """GET_MIN_OFFSET: the first message kept."""
    return _offset(broker.store.bounds(request.text("topic"), request.number("queueId"))[0])


def search(broker: Broker, request: Request) -> Answer:
    """SEARCH_OFFSET_BY_TIMESTAMP: LOWER, the first message at or after a time; UPPER, the last at or before it."""
    topic, queue_id, time = request.text("topic"), request.number("queueId"), request.number("timestamp")
    if request.fields.get("boundaryType", "").upper() != "UPPER":
        return _offset(broker.store.offset_at(topic, queue_id, time))
    return _offset(max(broker.store.offset_at(topic, queue_id, time + 1) - 1, 0))


def earliest(broker: Broker, request: Request) -> Answer:
    """GET_EARLIEST_MSG_STORETIME: when the first message kept was stored, -1 where there is none."""
    topic, queue_id = request.text("topic"), request.number("queueId")
    record = broker.read_one(topic, queue_id, broker.store.bounds(topic, queue_id)[0])
    return commands.success({"timestamp": str(-1 if record is None else store_timestamp(record))})


def query_offset(broker: Broker, request: Request) -> Answer:
    """QUERY_CONSUMER_OFFSET: where a group goes on; one that is new to a young queue starts with its first message."""
    group, topic, queue_id = request.text("consumerGroup"), request.text("topic"), request.number("queueId")
    offset = broker.offsets.get(topic, group, queue_id)
    if offset >= 0:
        return _offset(offset)
    least, most = broker.store.bounds(topic, queue_id)
    if request.flag("setZeroIfNotFound", True) and least <= 0 < most:
        return _offset(0)
    return refusal(ResponseCode.QUERY_NOT_FOUND, f"group {group} has no offset in queue {queue_id} of topic {topic}")


def update_offset(broker: Broker, request: Request) -> Answer:
    """UPDATE_CONSUMER_OFFSET."""
    group, topic = request.text("consumerGroup"), request.text("topic")
    queue_id, offset = request.number("queueId"), request.number("commitOffset")
    if broker.groups.get(group) is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {group} does not exist")
    existing_topic(broker, topic)
    if queue_id < 0 or not 0 <= offset < 2**63:
        raise InvalidRequest(f"queue {queue_id} and offset {offset} cannot be")
    if broker.settings.server_side_reset and broker.offsets.is_reset(topic, group, queue_id):
        return commands.response(
            ResponseCode.SUCCESS, remark="the offset has been reset, which the group does not know yet"
        )
    broker.offsets.commit(topic, group, queue_id, offset)
    return broker.durable(commands.success())


def query(broker: Broker, request: Request) -> Answer:
    """QUERY_MESSAGE: messages by key, the newest first."""
    topic, key, count = request.text("topic"), request.text("key"), request.number("maxNum")
    begin, end = request.number("beginTimestamp"), request.number("endTimestamp")
    if request.flag(_UNIQUE_KEY):
        count = _MAX_BY_UNIQUE_KEY
    records = broker.store.by_key(topic, key, begin, end, count)
    fields = {
        "indexLastUpdateTimestamp": str(0 if not records else store_timestamp(records[0])),
        "indexLastUpdatePhyoffset": str(0 if not records else int.from_bytes(records[0][28:36], "big")),
    }
    if not records:
        return refusal(ResponseCode.QUERY_NOT_FOUND, f"there is no message of topic {topic} with this key", fields)
    return commands.success(fields, b"".join(records))


def view(broker: Broker, request: Request) -> Answer:
    """VIEW_MESSAGE_BY_ID: the message at a commit log offset."""
    offset = request.number("offset")
    record = broker.store.record(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message at commit log offset {offset}")
    return commands.success(body=record)

"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME; and reviving, where nobody acknowledges."""

import logging
from dataclasses import replace

from proxy.embedded.broker import names
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.pop_checkpoints import Checkpoint
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.request import Answer, Refused, Request
from proxy.embedded.store import StorageError
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.batch_ack import BatchAck, BatchAckBody
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.names import RETRY_PREFIX
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import real_topic

_log = logging.getLogger("gantry.embedded")

# What could not be revived is tried again after this time, in ms.
_AGAIN = 1000
_POP_RETRY_QUEUES = 1
# Bodies without a batch.
_NOTHING = frozenset((b"", b"{}"))


def ack(broker: Broker, request: Request) -> Answer:
    """A message is done. A handle whose time is over is of no account."""
    topic, group, queue_id, offset, handle = _handled(broker, request)
    least, most = broker.store.bounds(topic, queue_id)
    if not least <= offset <= most:
        raise Refused(
            ResponseCode.NO_MESSAGE, f"queue {queue_id} of topic {topic} has offsets {least} to {most}, not {offset}"
        )
    if handle.is_order:
        _ack_in_order(broker, request, (topic, group, queue_id), offset, handle.pop_time)
    else:
        broker.checkpoints.ack((topic, group, queue_id, handle.start_offset, handle.pop_time), (offset,))
    return broker.durable(commands.success())


def batch_ack(broker: Broker, request: Request) -> Answer:
    """Many messages are done."""
    text = request.command.body
    body = BatchAckBody.decode(text) if text.strip() not in _NOTHING else None
    if body is None or not body.acks:
        raise Refused(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
    refused: Refused | None = None
    for one in body.acks:
        try:
            _ack_some(broker, request, one)
        except Refused as error:
            # The others are done all the same.
            refused = error
    if refused is not None:
        raise refused
    return broker.durable(commands.success())


def _ack_some(broker: Broker, request: Request, one: BatchAck) -> None:
    topic, group = real_topic(one.topic, one.consumer_group, one.retry), one.consumer_group
    least, most = broker.store.bounds(topic, one.queue_id)
    offsets = [offset for offset in one.queue_offsets() if least <= offset <= most]
    if one.revive_queue_id != pop.ORDER_REVIVE_QUEUE:
        broker.checkpoints.ack((topic, group, one.queue_id, one.start_offset, one.pop_time), offsets)
        return
    for offset in offsets:
        _ack_in_order(broker, request, (topic, group, one.queue_id), offset, one.pop_time)


def _ack_in_order(broker: Broker, request: Request, key: tuple[str, str, int], offset: int, pop_time: int) -> None:
    topic, group, queue_id = key
    if offset < broker.offsets.get(topic, group, queue_id):
        return
    try:
        next_offset = broker.orders.ack(key, offset, pop_time)
    except KeyError:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message {offset} of {key} has not been handed out") from None
    if next_offset is None:
        return
    if not broker.offsets.is_reset(topic, group, queue_id):
        broker.offsets.commit(topic, group, queue_id, next_offset)
    if not broker.orders.blocked(key, None, request.now):
        broker.arrived_at(topic, group, queue_id)


def change_invisible(broker: Broker, request: Request) -> Answer:
    """A message is visible at another time; the handle of before is void."""
    topic, group, queue_id, offset, handle = _handled(broker, request)
    least, most = broker.store.bounds(topic, queue_id)
    if not least <= offset < most:
        raise Refused(ResponseCode.NO_MESSAGE, f"queue {queue_id} of topic {topic} has no message {offset}")
    invisible_time = request.number("invisibleTime")
    fields = {"reviveQid": str(handle.revive_queue_id)}
    if handle.is_order:
        visible_at = request.now + invisible_time
        if offset < broker.offsets.get(topic, group, queue_id):
            return commands.success()
        broker.orders.postpone((topic, group, queue_id), offset, handle.pop_time, visible_at)
        broker.unlock_at(visible_at, (topic, group, queue_id))
        fields |= {"popTime": str(handle.pop_time), "invisibleTime": str(visible_at - handle.pop_time)}
    else:
        key = (topic, group, queue_id, handle.start_offset, handle.pop_time)
        pop_time = _move(broker, key, offset, request.now, invisible_time)
        fields |= {"popTime": str(pop_time), "invisibleTime": str(invisible_time)}
    return broker.durable(commands.success(fields))


def _move(broker: Broker, key: tuple[str, str, int, int, int], offset: int, now: int, invisible_time: int) -> int:
    """Put a message into a checkpoint of its own, and tell its pop time (ms).

    A message that has been acknowledged or revived meanwhile stays so.
    """
    if not broker.checkpoints.waits(key, offset):
        return now
    topic, group, queue_id, _, _ = key
    # Start offset and pop time name a checkpoint: within one millisecond they may name the one that it leaves.
    while (topic, group, queue_id, offset, now) in broker.checkpoints:
        now += 1
    point = Checkpoint(topic, group, queue_id, offset, now, now + invisible_time, (offset,))
    with broker.store.transaction():
        broker.checkpoints.ack(key, (offset,))
        broker.checkpoints.write(point)
    broker.checkpoints.note(point)
    return now


def _handled(broker: Broker, request: Request) -> tuple[str, str, int, int, ExtraInfo]:
    """Topic, group, queue id, offset and handle of a request."""
    group, queue_id, offset = request.text("consumerGroup"), request.number("queueId"), request.number("offset")
    handle = ExtraInfo.parse(request.text("extraInfo"))
    topic = existing_topic(broker, request.text("topic"))
    if not 0 <= queue_id < topic.read:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"topic {topic.name} has {topic.read} queues, not one of id {queue_id}"
        )
    return topic.name, group, queue_id, offset, handle


# Reviving.


def revive(broker: Broker, now: int) -> None:
    """Hand out again what was not acknowledged in time."""
    for point in broker.checkpoints.due(now):
        try:
            _revive(broker, point)
        except (RemotingError, StorageError) as error:
            _log.error("messages of topic %s cannot be handed out again now: %s", point.topic, error)
            broker.checkpoints.again(point, now + _AGAIN)


def _revive(broker: Broker, point: Checkpoint) -> None:
    if point.topic not in broker.topics or broker.groups.get(point.group) is None:
        broker.checkpoints.drop(point)
        return
    target = point.topic
    if not target.startswith(RETRY_PREFIX):
        target = names.pop_retry_topic(point.topic, point.group, broker.settings.retry_topic_v2)
    topic = broker.topics.create(target, _POP_RETRY_QUEUES)
    stored = []
    with broker.store.transaction():
        if broker.offsets.get(target, point.group, 0) < 0:
            broker.offsets.commit(target, point.group, 0, 0)
        for offset in point.offsets:
            records = broker.read_one(point.topic, point.queue_id, offset)
            if records is not None:
                stored.append(broker.store.append(_retried(broker, point, records, topic.name)))
        broker.checkpoints.erase(point)
    broker.checkpoints.forget(point)
    for message in stored:
        broker.arrived(message)


def _retried(broker: Broker, point: Checkpoint, record: bytes, topic: str) -> messages.StoredMessage:
    message = messages.decode_message(record)
    pairs = dict(message.property_map)
    if message.reconsume_times == 0 or properties.FIRST_POP_TIME not in pairs:
        pairs[properties.FIRST_POP_TIME] = str(point.pop_time)
    pairs[properties.ORIGIN_GROUP] = point.group
    own = (broker.settings.host, broker.settings.port)
    return replace(
        message,
        topic=topic,
        queue_id=0,
        reconsume_times=message.reconsume_times + 1,
        properties=properties.encode(pairs),
        born_host=own,
        store_host=own,
        prepared_transaction_offset=0,
    )

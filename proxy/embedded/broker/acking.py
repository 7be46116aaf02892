"""Handlers of ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME; redelivery of unacknowledged messages."""

import logging
from dataclasses import replace

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.pop_checkpoints import Checkpoint
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.work_budget import WorkBudget
from proxy.embedded.store import Corrupt, StorageError
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.batch_ack import BatchAck, BatchAckBody
from remoting.codes import ResponseCode
from remoting.errors import BodyError, RemotingError
from remoting.messages import MAX_PROPERTIES_LENGTH
from remoting.names import DLQ_PREFIX, RETRY_PREFIX, pop_retry_topic
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import real_topic

_log = logging.getLogger("gantry.embedded")

# Milliseconds until a failed redelivery is retried.
_RETRY_INTERVAL = 1000
# Maximum number of messages that are redelivered in one tick, apart from the rest of a checkpoint.
_MAX_REVIVED = 1024
_POP_RETRY_QUEUES = 1
# Bytes of properties that leave room for a receipt handle in a record, of seven numbers and the broker's name.
_MAX_RETRIED_PROPERTIES = MAX_PROPERTIES_LENGTH - 512
# Bodies of empty batches.
_EMPTY_BODIES = frozenset((b"", b"{}"))


def ack(broker: Broker, request: Request) -> Answer:
    """ACK_MESSAGE: acknowledge a message. An expired handle has no effect."""
    topic, group, queue_id, offset, handle = _parse(broker, request)
    first, end = broker.store.bounds(topic, queue_id)
    if not first <= offset <= end:
        raise Refused(
            ResponseCode.NO_MESSAGE, f"queue {queue_id} of topic {topic} has offsets {first} to {end}, not {offset}"
        )
    if handle.is_order:
        _ack_in_order(broker, request, (topic, group, queue_id), offset, handle.pop_time)
    else:
        broker.checkpoints.ack((topic, group, queue_id, handle.start_offset, handle.pop_time), (offset,))
    return broker.when_durable(commands.success())


def batch_ack(broker: Broker, request: Request) -> Answer:
    """BATCH_ACK_MESSAGE: acknowledge several messages."""
    text = request.command.body
    body = BatchAckBody.decode(text) if text.strip() not in _EMPTY_BODIES else None
    if body is None or not body.acks:
        raise Refused(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
    refusal: Refused | None = None
    for acks in body.acks:
        try:
            _ack_queue(broker, request, acks)
        except Refused as error:
            # The rest of the batch is acknowledged nevertheless.
            refusal = error
    if refusal is not None:
        raise refusal
    return broker.when_durable(commands.success())


def _ack_queue(broker: Broker, request: Request, acks: BatchAck) -> None:
    topic, group = real_topic(acks.topic, acks.consumer_group, acks.retry), acks.consumer_group
    first, end = broker.store.bounds(topic, acks.queue_id)
    offsets = [offset for offset in acks.queue_offsets() if first <= offset <= end]
    if acks.revive_queue_id != pop.ORDER_REVIVE_QUEUE:
        broker.checkpoints.ack((topic, group, acks.queue_id, acks.start_offset, acks.pop_time), offsets)
        return
    for offset in offsets:
        _ack_in_order(broker, request, (topic, group, acks.queue_id), offset, acks.pop_time)


def _ack_in_order(broker: Broker, request: Request, key: tuple[str, str, int], offset: int, pop_time: int) -> None:
    topic, group, queue_id = key
    if offset < broker.offsets.get(topic, group, queue_id):
        return
    try:
        next_offset = broker.fifo_locks.ack(key, offset, pop_time)
    except KeyError:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message {offset} of {key} was not delivered") from None
    if next_offset is None:
        return
    if not broker.offsets.has_reset(topic, group, queue_id):
        broker.offsets.commit(topic, group, queue_id, next_offset)
    if not broker.fifo_locks.blocked(key, None, request.now):
        broker.queue_readable(topic, group, queue_id)


def change_invisible(broker: Broker, request: Request) -> Answer:
    """CHANGE_MESSAGE_INVISIBLETIME: make a message visible at another time; its previous handle expires."""
    topic, group, queue_id, offset, handle = _parse(broker, request)
    first, end = broker.store.bounds(topic, queue_id)
    if not first <= offset < end:
        raise Refused(ResponseCode.NO_MESSAGE, f"queue {queue_id} of topic {topic} has no message {offset}")
    invisible_time = request.number("invisibleTime")
    fields = {"reviveQid": str(handle.revive_queue_id)}
    if handle.is_order:
        visible_at = request.now + invisible_time
        if offset < broker.offsets.get(topic, group, queue_id):
            return commands.success()
        broker.fifo_locks.postpone((topic, group, queue_id), offset, handle.pop_time, visible_at)
        broker.unlock_at(visible_at, (topic, group, queue_id))
        fields |= {"popTime": str(handle.pop_time), "invisibleTime": str(visible_at - handle.pop_time)}
    else:
        key = (topic, group, queue_id, handle.start_offset, handle.pop_time)
        pop_time = _move(broker, key, offset, request.now, invisible_time)
        fields |= {"popTime": str(pop_time), "invisibleTime": str(invisible_time)}
    return broker.when_durable(commands.success(fields))


def _move(broker: Broker, key: tuple[str, str, int, int, int], offset: int, now: int, invisible_time: int) -> int:
    """Move a message to a separate checkpoint, and return its pop time (ms).

    A message that was acknowledged or redelivered before remains so.
    """
    if not broker.checkpoints.is_pending(key, offset):
        return now
    topic, group, queue_id, _, pop_time = key
    # Start offset and pop time identify a checkpoint: within one millisecond they may be those of a previous handle.
    now = max(now, pop_time + 1)
    while (topic, group, queue_id, offset, now) in broker.checkpoints:
        now += 1
    checkpoint = Checkpoint(topic, group, queue_id, offset, now, now + invisible_time, (offset,))
    with broker.store.transaction():
        broker.checkpoints.ack(key, (offset,))
        broker.checkpoints.put(checkpoint)
    return now


def _parse(broker: Broker, request: Request) -> tuple[str, str, int, int, ExtraInfo]:
    """Return topic, group, queue id, offset and handle of a request."""
    group, queue_id, offset = request.text("consumerGroup"), request.number("queueId"), request.number("offset")
    handle = ExtraInfo.parse(request.text("extraInfo"))
    topic = existing_topic(broker, request.text("topic"))
    if not 0 <= queue_id < topic.read:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"topic {topic.name} has {topic.read} queues, but not queue {queue_id}"
        )
    return topic.name, group, queue_id, offset, handle


# Redelivery.


def revive(broker: Broker, now: int, budget: WorkBudget) -> None:
    """Redeliver the messages that were not acknowledged in time; of many, some remain for the next tick."""
    revived = 0
    for checkpoint in broker.checkpoints.due(now, budget):
        try:
            _revive(broker, checkpoint, budget)
        except (RemotingError, StorageError) as error:
            _log.error("messages of topic %s cannot be redelivered now: %s", checkpoint.topic, error)
            broker.checkpoints.retry_at(checkpoint, now + _RETRY_INTERVAL)
        revived += len(checkpoint.offsets)
        if revived >= _MAX_REVIVED:
            return


def _revive(broker: Broker, checkpoint: Checkpoint, budget: WorkBudget) -> None:
    if checkpoint.topic not in broker.topics or broker.groups.get(checkpoint.group) is None:
        broker.checkpoints.drop(checkpoint)
        return
    target = checkpoint.topic
    if not target.startswith(RETRY_PREFIX):
        target = pop_retry_topic(checkpoint.topic, checkpoint.group, broker.settings.retry_topic_v2)
    topic = broker.topics.create(target, _POP_RETRY_QUEUES)
    if broker.offsets.get(target, checkpoint.group, 0) < 0:
        broker.offsets.commit(target, checkpoint.group, 0, 0)
    stored: list[messages.StoredMessage] = []
    with broker.store.transaction():
        for offset in checkpoint.offsets:
            # An unreadable message must not keep the others from their redelivery.
            try:
                record = broker.read_one(checkpoint.topic, checkpoint.queue_id, offset)
                if record is not None:
                    budget.use(len(record))
                    stored.append(broker.store.append(_retried(broker, checkpoint, record, topic.name)))
            except (BodyError, Corrupt) as error:
                _log.error("message %d of topic %s cannot be redelivered: %s", offset, checkpoint.topic, error)
        broker.checkpoints.drop(checkpoint)
    for message in stored:
        broker.message_appended(message)
        if message.topic.startswith(DLQ_PREFIX):
            broker.dead_lettered(None, checkpoint.group, checkpoint.topic)


def _retried(broker: Broker, checkpoint: Checkpoint, record: bytes, topic: str) -> messages.StoredMessage:
    """Return the copy of a message for a retry topic; a dead letter if its properties have no room for a handle."""
    message = messages.decode_message(record)
    pairs = dict(message.property_map)
    if message.reconsume_times == 0 or properties.FIRST_POP_TIME not in pairs:
        pairs[properties.FIRST_POP_TIME] = str(checkpoint.pop_time)
    pairs[properties.ORIGIN_GROUP] = checkpoint.group
    text = properties.encode(pairs)
    if len(text.encode()) > _MAX_RETRIED_PROPERTIES:
        _log.warning("a message of topic %s has too many properties to be redelivered: a dead letter", checkpoint.topic)
        text, topic = message.properties, broker.topics.create_dead_letter_topic(checkpoint.group).name
    address = (broker.settings.host, broker.settings.port)
    return replace(
        message,
        topic=topic,
        queue_id=0,
        reconsume_times=message.reconsume_times + 1,
        properties=text,
        born_host=address,
        store_host=address,
        prepared_transaction_offset=0,
    )

"""Handlers of SEND_MESSAGE, batches, CONSUMER_SEND_MSG_BACK and RECALL_MESSAGE (RocketMQ's SendMessageProcessor)."""

import secrets
from collections.abc import Mapping
from dataclasses import replace

from proxy.embedded.broker import names
from proxy.embedded.broker.append_pipeline import int_or
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused, code_of, refusal
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.topics import UNIT, UNIT_SUBSCRIPTION, Topic
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest, RemotingError
from remoting.ids import OffsetMessageId, RecallHandle
from remoting.messages import TRANSACTION_MASK, StoredMessage, SysFlag, encoded_size
from remoting.names import DEFAULT_TOPIC, RETRY_PREFIX, retry_group, retry_topic
from remoting.properties import MessageType
from remoting.requests import SEND_FIELD_NAMES

# The first version (3.4.9) whose clients send the maximum number of redeliveries.
_SENDS_MAX_RECONSUME_TIMES = 121
_MAX_PRIORITY_DIGITS = 10


class Header:
    """The header of a message to send, in any version of the request."""

    __slots__ = (
        "batch",
        "born_timestamp",
        "default_queues",
        "default_topic",
        "flag",
        "max_reconsume_times",
        "producer_group",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "unit_mode",
    )

    def __init__(self, request: Request) -> None:
        keys = SEND_FIELD_NAMES[request.command.code]
        fields, number = request.fields, request.number
        self.producer_group = request.text(keys.producer_group)
        self.topic = request.text(keys.topic)
        self.default_topic = fields.get(keys.default_topic, DEFAULT_TOPIC)
        self.default_queues = number(keys.default_topic_queues, 4)
        self.queue_id = number(keys.queue_id)
        self.sys_flag = number(keys.sys_flag)
        self.born_timestamp = number(keys.born_timestamp)
        self.flag = number(keys.flag)
        self.properties = fields.get(keys.properties, "")
        self.reconsume_times = number(keys.reconsume_times, 0)
        self.unit_mode = request.flag(keys.unit_mode)
        has_maximum = fields.get(keys.max_reconsume_times) and request.command.version >= _SENDS_MAX_RECONSUME_TIMES
        self.max_reconsume_times = number(keys.max_reconsume_times) if has_maximum else None
        self.batch = request.flag(keys.batch)


def send(broker: Broker, request: Request) -> Answer:
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: store a message and return its place."""
    header = Header(request)
    try:
        topic = writable_topic(broker, header)
        store = _send_batch if header.batch else _send_one
        return store(broker, request, header, topic)
    except RemotingError as error:
        return refusal(code_of(error), str(error), _origin(broker))


def _send_one(broker: Broker, request: Request, header: Header, topic: Topic) -> Answer:
    if not request.command.body:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message is empty")
    pairs = sent_pairs(broker, header)
    pairs.setdefault(properties.UNIQ_CLIENT_MESSAGE_ID, secrets.token_hex(16).upper())
    message = new_message(broker, request, header, topic)
    if topic.name.startswith(RETRY_PREFIX):
        message = _retried(broker, header, message, pairs)
    message = _prioritized(message, topic, pairs)
    if (
        topic.attributes.get("cleanup.policy", "").upper() == "COMPACTION"
        and not pairs.get(properties.KEYS, "").strip()
    ):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a message of a compacted topic needs a key")
    delayed = message.reconsume_times > 0 and int_or(pairs.get(properties.DELAY_TIME_LEVEL), 0) > 0
    if pairs.get(properties.TRANSACTION_PREPARED, "").lower() == "true" and not delayed:
        stored = broker.transactions.prepare(message, pairs, request.now)
    else:
        stored = broker.pipeline.append(message, pairs, request.now)
    if message.topic != topic.name:
        broker.dead_lettered(request.channel, retry_group(topic.name), pairs.get(properties.RETRY_TOPIC, ""))
    fields = _place(broker, stored, message.queue_id)
    fields["transactionId"] = pairs[properties.UNIQ_CLIENT_MESSAGE_ID]
    due, real_topic = pairs.get(properties.TIMER_OUT_MS), pairs.get(properties.REAL_TOPIC, "")
    if due is not None and not real_topic.startswith(RETRY_PREFIX) and real_topic:
        # One more than the due time, which is rounded down.
        fields["recallHandle"] = str(
            RecallHandle(real_topic, broker.settings.name, int_or(due, 0) + 1, pairs[properties.UNIQ_CLIENT_MESSAGE_ID])
        )
    return broker.when_durable(commands.success(fields))


def _send_batch(broker: Broker, request: Request, header: Header, topic: Topic) -> Answer:
    if topic.name.startswith(RETRY_PREFIX):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"batches cannot go to the retry topic {topic.name}")
    pairs = properties.decode(header.properties)
    if header.sys_flag & TRANSACTION_MASK or int_or(pairs.get(properties.DELAY_TIME_LEVEL), 0) > 0:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed or transactional")
    body = request.command.body
    broker.pipeline.check(topic.name, body)
    message = new_message(broker, request, header, topic)
    entries = messages.decode_batch(body)
    if not entries:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    batch = []
    for entry in entries:
        crc, text = messages.crc(entry.body), _without_handle(entry.properties)
        batch.append(replace(message, body=entry.body, body_crc=crc, flag=entry.flag, properties=text))
    stored = broker.pipeline.append_all(batch)
    fields = _place(broker, stored[0], message.queue_id)
    fields["msgId"] = ",".join(message_id(broker, message) for message in stored)
    if (unique_id := pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID)) is not None:
        fields["transactionId"] = unique_id
    return broker.when_durable(commands.success(fields))


def _without_handle(text: str) -> str:
    """Return a message's properties without a receipt handle, which consumers would take for the broker's."""
    if properties.POP_CK not in text:
        return text
    return properties.without(text, properties.POP_CK)


def writable_topic(broker: Broker, header: Header) -> Topic:
    """Return the topic of a message, created if possible. Raises Refused, InvalidRequest."""
    name = header.topic
    topic = broker.topics.get(name)
    if topic is None or name in names.FORBIDDEN_TOPICS:
        names.check_topic(name)
        if name in names.FORBIDDEN_TOPICS:
            raise Refused(ResponseCode.NO_PERMISSION, f"clients may not send to topic {name}")
        retry = name.startswith(RETRY_PREFIX)
        sys_flag = 0 if not header.unit_mode else UNIT_SUBSCRIPTION if retry else UNIT
        topic = broker.topics.create_by_send(name, header.default_topic, header.default_queues, sys_flag)
        if topic is None and retry and broker.admit_topic(name):
            topic = broker.topics.create(name, 1, sys_flag=sys_flag)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist: create it first")
    if header.queue_id >= max(topic.write, topic.read):
        raise InvalidRequest(f"topic {name} has {topic.write} queues to write to, but not queue {header.queue_id}")
    return topic


def sent_pairs(broker: Broker, header: Header) -> dict[str, str]:
    """Return the properties of a sent message, with those that brokers add."""
    pairs = properties.decode(header.properties)
    pairs.pop(properties.POP_CK, None)
    pairs[properties.MSG_REGION] = broker.settings.region
    pairs[properties.TRACE_SWITCH] = broker.trace_switch
    pairs[properties.CLUSTER] = broker.settings.cluster
    return pairs


def new_message(broker: Broker, request: Request, header: Header, topic: Topic) -> StoredMessage:
    """Return the message of a request, without its properties."""
    queue_id = header.queue_id if header.queue_id >= 0 else broker.random.randrange(max(topic.write, 1))
    multi = SysFlag.MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0
    return StoredMessage(
        topic=topic.name,
        body=request.command.body,
        queue_id=queue_id,
        flag=header.flag,
        store_host=(broker.settings.host, broker.settings.port),
        body_crc=messages.crc(request.command.body),
        sys_flag=header.sys_flag | int(multi),
        born_timestamp=header.born_timestamp,
        born_host=request.address,
        reconsume_times=header.reconsume_times,
    )


def _retried(broker: Broker, header: Header, message: StoredMessage, pairs: dict[str, str]) -> StoredMessage:
    """Return a message that a consumer sent to its retry topic, as a dead letter after its last redelivery."""
    name = retry_group(message.topic)
    group = known_group(broker, name)
    maximum = group.retries if header.max_reconsume_times is None else header.max_reconsume_times
    # Queue locks show that the group consumes in order, which a later redelivery would violate.
    if message.reconsume_times <= maximum and not broker.locks.is_locked(name, broker.now):
        return message
    pairs[properties.DELAY_TIME_LEVEL] = "0"
    return replace(message, topic=broker.topics.create_dead_letter_topic(name).name, queue_id=0)


def _prioritized(message: StoredMessage, topic: Topic, pairs: dict[str, str]) -> StoredMessage:
    """Return a message with its priority as the queue id, at most the last queue (RocketMQ 5.4)."""
    text = pairs.get(properties.PRIORITY, "")
    if not text.isdecimal():
        return message
    if properties.message_type(pairs) is not MessageType.PRIORITY:
        del pairs[properties.PRIORITY]
        return message
    last = max(topic.write - 1, 0)
    # Python converts no text of thousands of digits.
    return replace(message, queue_id=last if len(text) > _MAX_PRIORITY_DIGITS else min(int(text), last))


def message_id(broker: Broker, message: StoredMessage) -> str:
    """Return the offset message id of a stored message."""
    return str(OffsetMessageId(broker.settings.host, broker.settings.port, message.commit_log_offset))


def _place(broker: Broker, stored: StoredMessage, queue_id: int) -> dict[str, str]:
    return {
        "msgId": message_id(broker, stored),
        "queueId": str(queue_id),
        "queueOffset": str(stored.queue_offset),
        **_origin(broker),
    }


def _origin(broker: Broker) -> dict[str, str]:
    return {properties.MSG_REGION: broker.settings.region, properties.TRACE_SWITCH: broker.trace_switch}


def known_group(broker: Broker, name: str, create: bool = True) -> Group:
    """Return a consumer group, created if groups are created automatically. Raises Refused."""
    group = broker.groups.find(name) if create else broker.groups.get(name)
    if group is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist")
    return group


def send_back(broker: Broker, request: Request) -> Answer:
    """CONSUMER_SEND_MSG_BACK: deliver a message again after a delay, or make it a dead letter."""
    group = known_group(broker, request.text("group"))
    if group.retry_queues <= 0:
        return commands.success()
    offset, level = request.number("offset"), request.number("delayLevel")
    sys_flag = UNIT_SUBSCRIPTION if request.flag("unitMode") else 0
    topic = broker.topics.create(retry_topic(group.name), group.retry_queues, sys_flag=sys_flag)
    if not topic.writable:
        raise Refused(ResponseCode.NO_PERMISSION, f"topic {topic.name} may not be written to")
    record = broker.store.record(offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    message = messages.decode_message(record)
    pairs = dict(message.property_map)
    pairs.setdefault(properties.RETRY_TOPIC, message.topic)
    pairs[properties.WAIT_STORE_MSG_OK] = "false"
    pairs.setdefault(properties.ORIGIN_MESSAGE_ID, message_id(broker, message))
    maximum = group.retries
    if request.command.version >= _SENDS_MAX_RECONSUME_TIMES:
        maximum = request.number("maxReconsumeTimes", maximum)
    dead = message.reconsume_times >= maximum or level < 0
    if dead:
        topic = broker.topics.create_dead_letter_topic(group.name)
        level = 0
    elif level == 0:
        level = 3 + message.reconsume_times
    pairs[properties.DELAY_TIME_LEVEL] = str(level)
    retry = replace(
        message,
        store_host=(broker.settings.host, broker.settings.port),
        topic=topic.name,
        queue_id=broker.random.randrange(max(topic.write, 1)),
        reconsume_times=message.reconsume_times + 1,
        prepared_transaction_offset=0,
    )
    stored = broker.pipeline.append(retry, pairs, request.now)
    broker.statistics.add_sent_back(pairs[properties.RETRY_TOPIC], group.name, encoded_size(stored), request.now)
    if dead:
        origin = request.fields.get("originTopic") or pairs[properties.RETRY_TOPIC]
        broker.dead_lettered(request.channel, group.name, origin)
    return broker.when_durable(commands.success())


def recall(broker: Broker, request: Request) -> Answer:
    """RECALL_MESSAGE: remove a message that is not due yet."""
    region = {properties.MSG_REGION: broker.settings.region}
    try:
        handle = _recall_handle(broker, request)
    except RemotingError as error:
        return refusal(code_of(error), str(error), region)
    broker.pipeline.recall(handle.topic, handle.message_id, handle.timestamp - 1)
    return broker.when_durable(commands.success({"msgId": handle.message_id, **region}))


def _recall_handle(broker: Broker, request: Request) -> RecallHandle:
    if not broker.settings.recall:
        raise Refused(ResponseCode.NO_PERMISSION, "recalls are disabled")
    topic = request.text("topic")
    if topic not in broker.topics:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist")
    try:
        handle = RecallHandle.parse(request.text("recallHandle"))
    except Exception as error:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
    _check_recall(broker, request, topic, handle)
    return handle


def _check_recall(broker: Broker, request: Request, topic: str, handle: RecallHandle) -> None:
    remaining = handle.timestamp - request.now
    reasons: Mapping[str, bool] = {
        f"the recall handle is not for topic {topic}": handle.topic != topic,
        f"the recall handle is for broker {handle.broker_name}": handle.broker_name != broker.settings.name,
        "the due time of the message has passed or is too late": not 0 < remaining < broker.settings.max_delay,
    }
    for reason, applies in reasons.items():
        if applies:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, reason)

"""Handlers of requests for the progress of topics and groups, and of resets (RocketMQ's AdminBrokerProcessor)."""

from typing import Any

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.queues import STORE_TIME_END, store_timestamp
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.routing import topic_list
from proxy.embedded.broker.sending import known_group
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ConsumerNotOnline, InvalidRequest
from remoting.fastjson import ObjectKeys
from remoting.names import RETRY_PREFIX, listed

# The values of a reset's queueId and offset that choose none.
_ALL = _UNSET = -1
_CPP = "CPP"
# Queues of one answer about all groups, about 50 µs each.
_MAX_ROWS = 10_000


def _queue(broker: Broker, topic: str, queue_id: int) -> dict[str, Any]:
    return {"topic": topic, "brokerName": broker.settings.name, "queueId": queue_id}


def _stored_at(broker: Broker, topic: str, queue_id: int, offset: int) -> int:
    """Return the store timestamp of the message at a queue offset; 0 if there is none."""
    head = broker.store.head(topic, queue_id, offset, STORE_TIME_END)
    return 0 if head is None else store_timestamp(head)


def topic_stats(broker: Broker, request: Request) -> Answer:
    """GET_TOPIC_STATS_INFO: return the bounds of each queue."""
    topic = existing_topic(broker, request.text("topic"))
    rows = []
    for queue_id in range(max(topic.read, topic.write)):
        first, end = broker.store.bounds(topic.name, queue_id)
        row = {
            "minOffset": first,
            "maxOffset": end,
            "lastUpdateTimestamp": _stored_at(broker, topic.name, queue_id, end - 1),
        }
        rows.append((_queue(broker, topic.name, queue_id), row))
    rate = broker.statistics.rate("TOPIC_PUT_NUMS", topic.name, request.now)
    return commands.success(body=fastjson.dumps({"offsetTable": ObjectKeys(tuple(rows)), "topicPutTps": rate}))


def consume_stats(broker: Broker, request: Request) -> Answer:
    """GET_CONSUME_STATS: return the progress of a group in each queue of one, several or all of its topics."""
    group = request.text("consumerGroup")
    topics = [topic for name in sorted(_measured_topics(broker, request, group)) if (topic := broker.topics.get(name))]
    rows = [row for topic in topics for row in _progress(broker, topic, group)]
    rate = sum(broker.statistics.rate("GROUP_GET_NUMS", f"{topic.name}@{group}", request.now) for topic in topics)
    return commands.success(body=fastjson.dumps({"consumeTps": float(rate), "offsetTable": ObjectKeys(tuple(rows))}))


def broker_stats(broker: Broker, request: Request) -> Answer:
    """GET_BROKER_CONSUME_STATS: return the progress of all groups in the topics to which they subscribe.

    Raises Refused if it takes more than a moment, in which no other request is served.
    """
    lists: list[dict[str, list[dict[str, Any]]]] = []
    topics: dict[str, set[str]] = {}
    for name, owner, _ in broker.offsets.items():
        topics.setdefault(owner, set()).add(name)
    total, rows_left = 0, _MAX_ROWS
    for group in broker.groups:
        stats: list[dict[str, Any]] = []
        for name in sorted(_subscribed(broker, group.name, topics.get(group.name, set()))):
            topic = broker.topics.get(name)
            if topic is None or (request.flag("isOrder") and not topic.order):
                continue
            rows_left -= topic.read
            if rows_left < 0:
                raise Refused(ResponseCode.SYSTEM_ERROR, "there are too many queues: ask for the progress of one group")
            rows = tuple(_progress(broker, topic, group.name))
            total += sum(row["brokerOffset"] - row["consumerOffset"] for _, row in rows)
            rate = broker.statistics.rate("GROUP_GET_NUMS", f"{name}@{group.name}", request.now)
            stats.append({"consumeTps": float(rate), "offsetTable": ObjectKeys(rows)})
        lists.append({group.name: stats})
    body = {"brokerAddr": broker.settings.address, "consumeStatsList": lists, "totalDiff": total}
    return commands.success(body=fastjson.dumps(body))


def _measured_topics(broker: Broker, request: Request, group: str) -> set[str]:
    """Return the topics of a GET_CONSUME_STATS.

    Those of `topicList`; else `topic` or all with offsets, without those to which the members no longer subscribe.
    """
    # Names are used as they are: permissions were checked for them.
    if names := listed(request.fields.get("topicList", "")):
        return set(names)
    chosen = request.fields.get("topic", "")
    topics = {chosen} if chosen.strip() else broker.offsets.topics(group)
    return _subscribed(broker, group, topics)


def _subscribed(broker: Broker, group: str, topics: set[str]) -> set[str]:
    """Return those of the topics to which the group subscribes; all if it has no members."""
    consumers = broker.members.consumers.get(group)
    if consumers is None or not consumers.subscriptions:
        return topics
    # Messages in retry topics are to be consumed, although popping members do not subscribe to these.
    return {topic for topic in topics if topic in consumers.subscriptions or topic.startswith(RETRY_PREFIX)}


def _progress(broker: Broker, topic: Topic, group: str) -> list[tuple[dict[str, Any], dict[str, int]]]:
    rows = []
    # By queue: the first popped message that is not acknowledged.
    unacknowledged: dict[int, int] = {}
    for checkpoint in broker.checkpoints.of_group(topic.name, group):
        for pending in checkpoint.offsets:
            unacknowledged[checkpoint.queue_id] = min(unacknowledged.get(checkpoint.queue_id, pending), pending)
    for queue_id in range(topic.read):
        end = broker.store.bounds(topic.name, queue_id)[1]
        offset = max(broker.offsets.get(topic.name, group, queue_id), 0)
        row = {
            "brokerOffset": end,
            # Popped messages that are not acknowledged do not count as consumed.
            "consumerOffset": min(offset, unacknowledged.get(queue_id, offset)),
            "pullOffset": max(broker.offsets.pulled(topic.name, group, queue_id), offset),
            "lastTimestamp": _stored_at(broker, topic.name, queue_id, offset - 1),
        }
        rows.append((_queue(broker, topic.name, queue_id), row))
    return rows


def offsets(broker: Broker, _: Request) -> Answer:
    """GET_ALL_CONSUMER_OFFSET."""
    table: dict[str, dict[int, int]] = {}
    topics: dict[str, list[str]] = {}
    for topic, group, by_queue in broker.offsets.items():
        table[f"{topic}@{group}"] = by_queue
        topics.setdefault(group, []).append(topic)
    version = {"counter": 0, "stateVersion": 0, "timestamp": broker.started}
    return commands.success(
        body=fastjson.dumps({"dataVersion": version, "groupTopicMap": topics, "offsetTable": table})
    )


def groups_of_topic(broker: Broker, request: Request) -> Answer:
    """QUERY_TOPIC_CONSUME_BY_WHO."""
    topic = request.text("topic")
    groups = sorted({*broker.members.subscribers(topic), *broker.offsets.groups(topic)})
    return commands.success(body=orjson.dumps({"groupList": groups}))


def topics_of_group(broker: Broker, request: Request) -> Answer:
    """QUERY_TOPICS_BY_CONSUMER."""
    return topic_list(broker.offsets.topics(request.text("group")), broker.settings.address)


def subscription(broker: Broker, request: Request) -> Answer:
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""
    group, topic = request.text("group"), request.text("topic")
    current = broker.members.subscription(group, topic)
    data = {"group": group, "topic": topic, "subscriptionData": None if current is None else dict(current.data)}
    return commands.success(body=orjson.dumps(data))


def time_spans(broker: Broker, request: Request) -> Answer:
    """QUERY_CONSUME_TIME_SPAN: return the store timestamps of a group's queues, and those of its progress."""
    topic, group = existing_topic(broker, request.text("topic")), request.text("group")
    rows = []
    for queue_id in range(topic.write):
        first, end = broker.store.bounds(topic.name, queue_id)
        offset = broker.offsets.get(topic.name, group, queue_id)
        oldest, newest = (_stored_at(broker, topic.name, queue_id, at) for at in (first, end - 1))
        consumed = _stored_at(broker, topic.name, queue_id, offset - 1) if offset > first else oldest
        delay = request.now - _stored_at(broker, topic.name, queue_id, offset) if 0 <= offset < end else 0
        rows.append(
            {
                "messageQueue": _queue(broker, topic.name, queue_id),
                "minTimeStamp": oldest,
                "maxTimeStamp": newest,
                "consumeTimeStamp": consumed,
                "delayTime": delay,
            }
        )
    return commands.success(body=orjson.dumps({"consumeTimeSpanSet": rows}))


def clone(broker: Broker, request: Request) -> Answer:
    """CLONE_GROUP_OFFSET: copy the offsets of one group to another."""
    source, target = request.text("srcGroup"), request.text("destGroup")
    chosen = request.fields.get("topic")
    for topic in {chosen} if chosen else broker.offsets.topics(source):
        if topic.startswith(RETRY_PREFIX):
            continue
        for queue_id, offset in broker.offsets.of(topic, source).items():
            broker.offsets.commit(topic, target, queue_id, offset)
    return broker.when_durable(commands.success())


# Resets.


def reset(broker: Broker, request: Request) -> Answer:
    """INVOKE_BROKER_TO_RESET_OFFSET: reset a group to a time, to the end (-1), or to an offset of one queue."""
    topic, group = existing_topic(broker, request.text("topic")), request.text("group")
    if broker.settings.server_side_reset:
        known_group(broker, group, create=False)
        targets = _targets(broker, request, topic)
        for queue_id, offset in targets.items():
            broker.offsets.reset(topic.name, group, queue_id, offset)
            broker.queue_readable(topic.name, group, queue_id)
    else:
        targets = _pushed_targets(broker, request, topic, group)
        _push_reset(broker, request, topic, group, targets)
    rows = tuple((_queue(broker, topic.name, queue_id), offset) for queue_id, offset in targets.items())
    return broker.when_durable(commands.success(body=fastjson.dumps({"offsetTable": ObjectKeys(rows)})))


def _targets(broker: Broker, request: Request, topic: Topic) -> dict[int, int]:
    """Return the new offsets by queue id. As in brokers, `isForce` has no meaning here. Raises Refused."""
    chosen, time = request.number("queueId", _ALL), request.number("timestamp")
    if chosen >= max(topic.read, topic.write):
        raise InvalidRequest(f"topic {topic.name} has no queue {chosen}")
    if chosen >= 0 and (explicit := request.number("offset", _UNSET)) != _UNSET:
        first, end = broker.store.bounds(topic.name, chosen)
        if not first <= explicit <= end + 1:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"offset {explicit} is not in the range {first} to {end} of queue {chosen} of topic {topic.name}",
            )
        return {chosen: explicit}
    queues = [chosen] if chosen >= 0 else range(topic.read)
    if not queues:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"topic {topic.name} has no queues to reset")
    return {queue_id: _offset_at(broker, topic, queue_id, time) for queue_id in queues}


def _offset_at(broker: Broker, topic: Topic, queue_id: int, time: int) -> int:
    """Return the first offset at or after a time (ms), the end of the queue for a negative time."""
    return (
        broker.store.bounds(topic.name, queue_id)[1] if time < 0 else broker.store.offset_at(topic.name, queue_id, time)
    )


def _pushed_targets(broker: Broker, request: Request, topic: Topic, group: str) -> dict[int, int]:
    """Return the offsets to which clients are asked to go: without `isForce`, never later ones. Raises Refused."""
    time, force = request.number("timestamp"), request.flag("isForce")
    targets = {}
    for queue_id in range(topic.write):
        current = broker.offsets.get(topic.name, group, queue_id)
        if current < 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"consumer group {group} has no offset in topic {topic.name}")
        offset = _offset_at(broker, topic, queue_id, time)
        targets[queue_id] = offset if force or offset < current else current
    return targets


def _push_reset(broker: Broker, request: Request, topic: Topic, group: str, targets: dict[int, int]) -> None:
    """Ask the group's members to reset their offsets."""
    consumers = broker.members.consumers.get(group)
    if consumers is None:
        raise ConsumerNotOnline(f"consumer group {group} has no members that could reset their offsets")
    fields = {
        "topic": topic.name,
        "group": group,
        "timestamp": request.text("timestamp"),
        "isForce": request.fields.get("isForce", "false"),
    }
    for channel, client in consumers.clients.items():
        body = _table(broker, topic.name, targets, client.language == _CPP)
        command = commands.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body, oneway=True)
        broker.push(channel, command)


def _table(broker: Broker, topic: str, targets: dict[int, int], plain: bool) -> bytes:
    """Return a ResetOffsetBody, with a list for C++ clients."""
    queues = [(_queue(broker, topic, queue_id), offset) for queue_id, offset in targets.items()]
    if plain:
        return orjson.dumps({"offsetTable": [{**queue, "offset": offset} for queue, offset in queues]})
    return fastjson.dumps({"offsetTable": ObjectKeys(tuple(queues))})

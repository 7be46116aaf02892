"""Handlers of tools' requests that create, show and delete topics and groups (RocketMQ's AdminBrokerProcessor)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from proxy.embedded.broker import names
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.topics import Topic
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import BodyError, InvalidRequest
from remoting.fastjson import load_request
from remoting.names import RETRY_PREFIX, is_system, pop_retry_topic
from remoting.properties import MessageType
from remoting.topic_group_config import MESSAGE_TYPE_ATTRIBUTE

_ATTRIBUTES: dict[str, frozenset[str] | None] = {
    "queue.type": frozenset(("SimpleCQ", "BatchCQ", "RocksDBCQ")),
    "cleanup.policy": frozenset(("DELETE", "COMPACTION")),
    MESSAGE_TYPE_ATTRIBUTE: frozenset(MessageType),
    "reserve.time": None,
}
_MAX_QUEUES = 65_536


def create_topic(broker: Broker, request: Request) -> Answer:
    """UPDATE_AND_CREATE_TOPIC."""
    name = request.text("topic")
    topic = Topic(
        name,
        request.number("readQueueNums"),
        request.number("writeQueueNums"),
        request.number("perm"),
        request.fields.get("topicFilterType") or "SINGLE_TAG",
        request.number("topicSysFlag", 0),
        request.flag("order"),
        _altered(broker.topics.get(name), _changes(request.fields.get("attributes", ""))),
    )
    _put_topic(broker, topic)
    return broker.when_durable(commands.success())


def create_topics(broker: Broker, request: Request) -> Answer:
    """UPDATE_AND_CREATE_TOPIC_LIST."""
    items = load_request(request.command.body).get("topicConfigList") or []
    try:
        topics = [Topic.from_json(item) for item in items]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"a topic's configuration is invalid: {error}") from None
    for topic in topics:
        attributes = _altered(broker.topics.get(topic.name), topic.attributes)
        _put_topic(broker, replace(topic, attributes=attributes))
    return broker.when_durable(commands.success())


def _put_topic(broker: Broker, topic: Topic) -> None:
    names.check_topic(topic.name)
    if is_system(topic.name):
        raise InvalidRequest(f"topic {topic.name} is a system topic")
    if not (0 <= topic.read <= _MAX_QUEUES and 0 <= topic.write <= _MAX_QUEUES):
        raise InvalidRequest(
            f"a topic cannot have {topic.read} queues to read from and {topic.write} queues to write to"
        )
    broker.topics.put(topic)


def _changes(text: str) -> dict[str, str]:
    """Return `+key=value,-key` as a mapping whose keys keep their signs."""
    pairs = (item.partition("=") for item in text.split(",") if item.strip())
    return {key.strip(): value for key, _, value in pairs}


def _altered(topic: Topic | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's attributes after changes of `+key` and `-key`. Raises Refused."""
    attributes = dict(topic.attributes) if topic is not None else {}
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in {"+", "-"} or key not in _ATTRIBUTES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{signed[:60]!r} does not change an attribute of topics")
        allowed = _ATTRIBUTES[key]
        if sign == "-":
            attributes.pop(key, None)
        elif allowed is not None and value not in allowed:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the attribute {key} cannot be {value[:40]!r}")
        else:
            attributes[key] = value
    return attributes


def delete_topic(broker: Broker, request: Request) -> Answer:
    """DELETE_TOPIC_IN_BROKER: delete a topic with its messages, offsets, and retry topics of popping groups."""
    name = request.text("topic")
    if is_system(name):
        raise InvalidRequest(f"topic {name} is a system topic")
    topics = [name, *_pop_retry_topics(broker, name)]
    with broker.store.transaction():
        for topic in topics:
            if topic in broker.topics:
                broker.topics.drop(topic)
                broker.store.drop_topic(topic)
                broker.offsets.drop_topic(topic)
                broker.fifo_locks.drop(topic=topic)
                broker.checkpoints.drop_topic(topic)
                broker.store.when_written(partial(broker.statistics.drop_topic, topic))
    return broker.when_durable(commands.success())


def _pop_retry_topics(broker: Broker, topic: str) -> Iterator[str]:
    """Yield the names of a topic's retry topics of popping groups.

    That of the group `g` and the topic `t` is also the name of the retry topic of a group `g_t`: while there is such a
    group, it is its own.
    """
    for group in broker.groups:
        for v2 in (False, True):
            name = pop_retry_topic(topic, group.name, v2)
            if broker.groups.get(name.removeprefix(RETRY_PREFIX)) is None:
                yield name


def topic_config(broker: Broker, request: Request) -> Answer:
    """GET_TOPIC_CONFIG."""
    topic = broker.topics.get(request.text("topic"))
    if topic is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {request.text('topic')}")
    return commands.success(body=orjson.dumps(topic.to_json()))


def topic_configs(broker: Broker, _: Request) -> Answer:
    """GET_ALL_TOPIC_CONFIG."""
    table = {topic.name: topic.to_json() for topic in broker.topics}
    data = {
        "topicConfigTable": table,
        "dataVersion": _version(broker, broker.topics.version),
        # There are no static topics.
        "mappingDataVersion": _version(broker, 0),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return commands.success({"totalTopicNum": str(len(table))}, orjson.dumps(data))


def _version(broker: Broker, counter: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": broker.started}


# Groups.


def create_group(broker: Broker, request: Request) -> Answer:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    _put_group(broker, load_request(request.command.body))
    return broker.when_durable(commands.success())


def create_groups(broker: Broker, request: Request) -> Answer:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""
    items = load_request(request.command.body).get("groupConfigList") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BodyError("the groupConfigList is not a list of objects")
    for item in items:
        _put_group(broker, item)
    return broker.when_durable(commands.success())


def _put_group(broker: Broker, data: dict[str, Any]) -> None:
    name = data.get("groupName")
    if not isinstance(name, str) or not names.is_group(name):
        raise InvalidRequest(f"invalid name of a group: {str(name)[:80]!r}")
    current = broker.groups.get(name)
    attributes = dict(current.data["attributes"] or {}) if current is not None else {}
    changes = data.get("attributes") or {}
    numbers = ("retryQueueNums", "retryMaxTimes", "groupSysFlag", "brokerId")
    if not isinstance(changes, dict) or any(type(data.get(name, 0)) is not int for name in numbers):
        raise BodyError(f"the configuration of group {name} has a value of a wrong type")
    for key, value in changes.items():
        if key.startswith("-"):
            attributes.pop(key[1:], None)
        else:
            attributes[key.removeprefix("+")] = value
    broker.groups.put(Group({**data, "attributes": attributes}))


def delete_group(broker: Broker, request: Request) -> Answer:
    """DELETE_SUBSCRIPTIONGROUP: delete a group, and with cleanOffset its offsets."""
    name = request.text("groupName")
    with broker.store.transaction():
        broker.groups.drop(name)
        if request.flag("cleanOffset") or request.flag("removeOffset"):
            broker.offsets.drop_group(name)
        broker.fifo_locks.drop(group=name)
    return broker.when_durable(commands.success())


def group_config(broker: Broker, request: Request) -> Answer:
    """GET_SUBSCRIPTIONGROUP_CONFIG."""
    group = broker.groups.find(request.text("group"))
    if group is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no consumer group {request.text('group')}")
    return commands.success(body=orjson.dumps(group.data))


def group_configs(broker: Broker, _: Request) -> Answer:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
    table = {group.name: group.data for group in broker.groups}
    data = {
        "subscriptionGroupTable": table,
        "forbiddenTable": {},
        "dataVersion": _version(broker, broker.groups.version),
    }
    return commands.success({"totalGroupNum": str(len(table))}, orjson.dumps(data))

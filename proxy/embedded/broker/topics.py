"""Topics: stored configurations, system topics, automatic creation (RocketMQ's TopicConfigManager)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from proxy.embedded.broker import names
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Store
from remoting.messages import READ_AND_WRITE, Permission
from remoting.names import DEFAULT_TOPIC, dead_letter_topic, reply_topic
from remoting.properties import MessageType
from remoting.topic_group_config import MESSAGE_TYPE_ATTRIBUTE

# Bits of a topic's sys flag: a topic of a unit, the retry topic of a unit.
UNIT, UNIT_SUBSCRIPTION = 1, 2


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration. read, write: numbers of queues; permission: bits of `messages.Permission`."""

    name: str
    read: int = 8
    write: int = 8
    permission: int = READ_AND_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return bool(self.permission & Permission.READ)

    @property
    def writable(self) -> bool:
        return bool(self.permission & Permission.WRITE)

    @property
    def kind(self) -> str:
        """The message type that it accepts."""
        return self.attributes.get(MESSAGE_TYPE_ATTRIBUTE, MessageType.NORMAL).upper()

    def to_json(self) -> dict[str, Any]:
        """Return the topic as a TopicConfig."""
        return {
            "topicName": self.name,
            "readQueueNums": self.read,
            "writeQueueNums": self.write,
            "perm": self.permission,
            "topicFilterType": self.filter_type,
            "topicSysFlag": self.sys_flag,
            "order": self.order,
            "attributes": dict(self.attributes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Topic":
        """Return the topic of a TopicConfig. Raises KeyError, TypeError, ValueError."""
        return cls(
            str(data["topicName"]),
            int(data.get("readQueueNums", 8)),
            int(data.get("writeQueueNums", 8)),
            int(data.get("perm", READ_AND_WRITE)),
            str(data.get("topicFilterType") or "SINGLE_TAG"),
            int(data.get("topicSysFlag", 0)),
            bool(data.get("order", False)),
            {str(key): str(value) for key, value in (data.get("attributes") or {}).items()},
        )

    def route(self, broker: str) -> dict[str, Any]:
        """Return the topic as a QueueData."""
        return {
            "brokerName": broker,
            "readQueueNums": self.read,
            "writeQueueNums": self.write,
            "perm": self.permission,
            "topicSysFlag": self.sys_flag,
        }


class Topics:
    """All topics by name. `version` counts changes. `admit` returns whether a request may create a topic."""

    def __init__(self, settings: BrokerSettings, store: Store, admit: Callable[[str], bool]) -> None:
        self._store = store
        self._table = store.table("topics")
        self._admit = admit
        self.version = 0
        self._topics = {topic.name: topic for topic in _system_topics(settings)}
        for _, value in self._table.items():  # noqa: PERF102  # a table, not a dict
            topic = Topic.from_json(orjson.loads(value))
            self._topics[topic.name] = topic

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def put(self, topic: Topic) -> Topic:
        """Create or change a topic."""
        if self._topics.get(topic.name) != topic:
            self._table.put(topic.name.encode(), orjson.dumps(topic.to_json()))
            self._store.when_written(partial(self._set, topic))
        return topic

    def _set(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self.version += 1

    def drop(self, name: str) -> None:
        """Remove a topic; an unknown one is ignored."""
        if name in self._topics:
            self._table.delete(name.encode())
            self._store.when_written(partial(self._forget, name))

    def _forget(self, name: str) -> None:
        self._topics.pop(name, None)
        self.version += 1

    def create_by_send(self, name: str, template: str, queues: int, sys_flag: int) -> Topic | None:
        """Create a topic for its first message from a template.

        Return None if the template may not be inherited, or the client may create no further topic.
        """
        parent = self._topics.get(template)
        if parent is None or not parent.permission & Permission.INHERIT or not self._admit(name):
            return None
        count = max(min(queues, parent.write), 0)
        permission = parent.permission & ~Permission.INHERIT
        return self.put(replace(parent, name=name, read=count, write=count, permission=permission, sys_flag=sys_flag))

    def create(self, name: str, queues: int, *, order: bool = False, sys_flag: int = 0) -> Topic:
        """Create a topic of the broker, such as a retry topic; of an existing one, only `order` changes."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic if topic.order == order else self.put(replace(topic, order=order))
        return self.put(Topic(name, queues, queues, sys_flag=sys_flag, order=order))

    def create_dead_letter_topic(self, group: str) -> Topic:
        """Create the topic of a group's dead letters, with one queue, unless it exists."""
        return self.create(dead_letter_topic(group), 1)


def _system_topics(settings: BrokerSettings) -> Iterator[Topic]:
    for name, queues in names.FIXED_TOPICS.items():
        yield Topic(name, queues, queues)
    inherited = int(READ_AND_WRITE | Permission.INHERIT)
    if settings.auto_create_topics:
        yield Topic(DEFAULT_TOPIC, settings.default_queues, settings.default_queues, inherited)
    yield Topic(settings.cluster, 16, 16, inherited)
    yield Topic(settings.name, 1, 1, inherited)
    yield Topic(reply_topic(settings.cluster), 1, 1)
    yield Topic(f"rmq_sys_REVIVE_LOG_{settings.cluster}", 8, 8)
    yield Topic(f"rmq_sys_SYNC_BROKER_MEMBER_{settings.name}", 1, 1, int(Permission.INHERIT))

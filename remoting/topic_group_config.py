"""Configurations of topics and consumer groups (RocketMQ's TopicConfig and SubscriptionGroupConfig)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from remoting.errors import BodyError
from remoting.fastjson import load_object
from remoting.messages import READ_AND_WRITE
from remoting.names import DEFAULT_TOPIC
from remoting.properties import MessageType

# Keys of attributes. A stored configuration has them without the `+` of an update.
MESSAGE_TYPE_ATTRIBUTE = "message.type"
_LITE_SUBSCRIPTION_QUOTA = "lite.sub.client.quota"
_LITE_BIND_TOPIC = "lite.bind.topic"

# Retry delays of a group without a retry policy, in ms (RocketMQ's CustomizedRetryPolicy).
DEFAULT_BACKOFF = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
_DEFAULT_RETRIES = 16
# Limits for operators: queues of a topic at a broker, and redeliveries of a group's messages. Brokers accept more
# queues, which costs each of them files and every client its polls.
MAX_QUEUES = 1024
MAX_RETRIES = 10_000
# SubscriptionGroupConfig of a new group: RocketMQ's defaults, which brokers do not add themselves.
NEW_GROUP: Mapping[str, Any] = {
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": _DEFAULT_RETRIES,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
}
_MAX_INT = 2**31 - 1
# Lite topics that a member may subscribe to in a group without a quota of its own (SubscriptionGroupAttributes).
_DEFAULT_LITE_QUOTA = 2_000


def topic_fields(name: str, kind: str, readable: int, writable: int, permission: int) -> dict[str, str]:
    """Return the ext fields of UPDATE_AND_CREATE_TOPIC. kind: the message type; readable, writable: queues."""
    return {
        "topic": name,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": str(readable),
        "writeQueueNums": str(writable),
        "perm": str(permission),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+{MESSAGE_TYPE_ATTRIBUTE}={kind}",
    }


def group_changes(fifo: bool | None, retries: int | None, enabled: bool | None) -> dict[str, object]:
    """Return the fields of SubscriptionGroupConfig that are given."""
    fields = {
        "consumeMessageOrderly": fifo,
        "retryMaxTimes": retries,
        "consumeEnable": enabled,
    }
    return {name: value for name, value in fields.items() if value is not None}


def changed_group(stored: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return a stored SubscriptionGroupConfig with changes, for UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.

    Without attributes, which brokers expect as changes.
    """
    return {**{key: value for key, value in stored.items() if key != "attributes"}, **changes}


def copied_topic(name: str, stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the ext fields of UPDATE_AND_CREATE_TOPIC that create the topic with the TopicConfig of another broker."""
    attributes = {MESSAGE_TYPE_ATTRIBUTE: MessageType.NORMAL, **(stored.get("attributes") or {})}
    readable, writable, permission = (int(stored[key]) for key in ("readQueueNums", "writeQueueNums", "perm"))
    return {
        **topic_fields(name, "", readable, writable, permission),
        "topicSysFlag": str(stored.get("topicSysFlag") or 0),
        "order": "true" if stored.get("order") else "false",
        "attributes": ",".join(f"+{key}={value}" for key, value in attributes.items()),
    }


def changed_topic(
    name: str, stored: Mapping[str, Any], kind: str | None, queues: int | None, permission: int | None
) -> dict[str, str]:
    """Return the ext fields of UPDATE_AND_CREATE_TOPIC that change a stored TopicConfig. None leaves a value.

    Of the attributes, brokers expect the changed ones.
    """
    readable, writable = (queues or int(stored[key]) for key in ("readQueueNums", "writeQueueNums"))
    present = (stored.get("attributes") or {}).get(MESSAGE_TYPE_ATTRIBUTE) or MessageType.NORMAL
    return {
        **copied_topic(name, stored),
        "readQueueNums": str(readable),
        "writeQueueNums": str(writable),
        "perm": str(stored["perm"] if permission is None else permission),
        "attributes": f"+{MESSAGE_TYPE_ATTRIBUTE}={kind or present}",
    }


def copied_group(stored: Mapping[str, Any]) -> dict[str, object]:
    """Return the SubscriptionGroupConfig of another broker for UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    attributes = stored.get("attributes") or {}
    return changed_group(stored, {"attributes": {f"+{key}": value for key, value in attributes.items()}})


def completion_obstacle(
    differences: Mapping[str, str | None], missing: Collection[str], update: str, update_first: str
) -> str | None:
    """Return why an existing topic or group cannot be created at the brokers without it; None: it can.

    differences: by broker with it, None where its definition is the wanted one. missing: brokers without it. update,
    update_first: advice to change it, where no broker lacks it and where definitions differ.
    """
    if not missing:
        return f"exists; {update}"
    for broker, difference in differences.items():
        if difference is not None:
            return (
                f"exists at {broker} with another definition ({difference}): create it at {', '.join(missing)} "
                f"with the same one, or {update_first}"
            )
    return None


def topic_difference(stored: Mapping[str, Any], kind: str, queues: int, permission: int) -> str | None:
    """Return the properties of a stored TopicConfig if they differ from a new topic's; None if they agree."""
    found = (stored.get("attributes") or {}).get(MESSAGE_TYPE_ATTRIBUTE) or MessageType.NORMAL
    readable, writable, allowed = (int(stored[key]) for key in ("readQueueNums", "writeQueueNums", "perm"))
    if (str(found), readable, writable, allowed & READ_AND_WRITE) == (kind, queues, queues, permission):
        return None
    return f"type {found}, {readable} read and {writable} write queues, permission {allowed}"


def group_difference(stored: Mapping[str, Any], changes: Mapping[str, object]) -> str | None:
    """Return the properties of a stored SubscriptionGroupConfig if they differ from those of a new group with changes;
    None if they agree."""
    found, wanted = {**NEW_GROUP, **stored}, {**NEW_GROUP, **changes}
    keys = ("consumeMessageOrderly", "retryMaxTimes", "consumeEnable")
    if all(found[key] == wanted[key] for key in keys):
        return None
    return ", ".join(f"{key} {found[key]}" for key in keys)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic and its message type; UNSPECIFIED accepts all types."""

    name: str
    message_type: MessageType = MessageType.NORMAL

    @classmethod
    def parse(cls, body: bytes) -> "TopicConfig":
        """Parse a TopicConfigAndQueueMapping. Raises BodyError."""
        data = load_object(body)
        attributes = data.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise BodyError("a topic's attributes are not an object")
        try:
            kind = MessageType(str(attributes.get(MESSAGE_TYPE_ATTRIBUTE) or MessageType.NORMAL).upper())
        except ValueError:
            # A type of a newer broker, which validates the messages.
            kind = MessageType.UNSPECIFIED
        return cls(str(data.get("topicName") or ""), kind)


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Backoff that grows by a factor: the delay after delivery n (from 1) is `initial * multiplier ** (n - 1)` ms.

    It is at most `max_delay` ms.
    """

    initial: int = 5_000
    max_delay: int = 7_200_000
    multiplier: float = 2.0

    def delay(self, attempt: int) -> int:
        """Return the delay in ms between delivery `attempt` (from 1) and the next one."""
        exponent = min(max(attempt, 1) - 1, 32)
        try:
            return min(int(self.initial * self.multiplier**exponent), self.max_delay)
        except (OverflowError, ValueError):
            # The broker accepts any multiplier.
            return self.max_delay


@dataclass(frozen=True, slots=True)
class CustomizedBackoff:
    """Backoff by a list of delays in ms; the last one applies to all later retries."""

    delays: tuple[int, ...] = DEFAULT_BACKOFF

    def delay(self, attempt: int) -> int:
        """Return the delay in ms between delivery `attempt` (from 1) and the next one."""
        return self.delays[min(max(attempt, 1), len(self.delays)) - 1]


Backoff = ExponentialBackoff | CustomizedBackoff


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A consumer group.

    `retries` is the number of redeliveries before a message goes to the dead letter queue. `lite_bind_topic` is the
    parent topic of a lite group, whose members receive lite topics of it; empty for a regular group. `assumed` marks a
    default configuration that is used until a broker returns the real one.
    """

    name: str
    orderly: bool = False
    retries: int = _DEFAULT_RETRIES
    backoff: Backoff = CustomizedBackoff()
    consume_enable: bool = True
    lite_subscription_quota: int | None = None
    lite_bind_topic: str = ""
    assumed: bool = field(default=False, compare=False)

    @property
    def max_attempts(self) -> int:
        """The maximum number of deliveries of a message, from 1 up to the largest Java int."""
        return min(max(self.retries, 0) + 1, _MAX_INT)

    @property
    def max_lite_subscriptions(self) -> int:
        """The number of lite topics that a member may subscribe to: the largest Java int if there is no quota (-1)."""
        quota = _DEFAULT_LITE_QUOTA if self.lite_subscription_quota is None else self.lite_subscription_quota
        return min(quota, _MAX_INT) if quota >= 0 else _MAX_INT

    @classmethod
    def parse(cls, body: bytes) -> "GroupConfig":
        """Parse a SubscriptionGroupConfig. Raises BodyError."""
        data = load_object(body)
        try:
            attributes = data.get("attributes") or {}
            quota = attributes.get(_LITE_SUBSCRIPTION_QUOTA)
            return cls(
                str(data.get("groupName") or ""),
                bool(data.get("consumeMessageOrderly", False)),
                int(data.get("retryMaxTimes", _DEFAULT_RETRIES)),
                _backoff(data.get("groupRetryPolicy") or {}),
                bool(data.get("consumeEnable", True)),
                None if quota is None else int(quota),
                str(attributes.get(_LITE_BIND_TOPIC) or ""),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"a group's configuration cannot be read: {error}") from None


def _backoff(policy: Mapping[str, Any]) -> Backoff:
    if policy.get("type") == "EXPONENTIAL":
        values = policy.get("exponentialRetryPolicy") or {}
        default = ExponentialBackoff()
        return ExponentialBackoff(
            int(values.get("initial", default.initial)),
            int(values.get("max", default.max_delay)),
            float(values.get("multiplier", default.multiplier)),
        )
    delays = tuple(int(delay) for delay in (policy.get("customizedRetryPolicy") or {}).get("next") or ())
    return CustomizedBackoff(delays) if delays else CustomizedBackoff()

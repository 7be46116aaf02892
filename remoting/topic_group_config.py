"""What brokers keep about a topic and about a consumer group (RocketMQ's TopicConfig, SubscriptionGroupConfig)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoting.errors import BodyError
from remoting.fastjson import load_object
from remoting.properties import MessageType

# Attribute keys; in a stored configuration they stand without the `+` of a change.
_MESSAGE_TYPE = "message.type"
_LITE_SUBSCRIPTION_QUOTA = "lite.sub.client.quota"

# The ladder of a group without a policy of its own, in ms (RocketMQ's CustomizedRetryPolicy).
DEFAULT_BACKOFF = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
_DEFAULT_RETRIES = 16
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic: what type of messages it takes (UNSPECIFIED where its brokers do not say: anything)."""

    name: str
    message_type: MessageType = MessageType.NORMAL

    @classmethod
    def parse(cls, body: bytes) -> "TopicConfig":
        """Read TopicConfigAndQueueMapping. Raises BodyError."""
        data = load_object(body)
        attributes = data.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise BodyError("a topic's attributes are not an object")
        try:
            kind = MessageType(str(attributes.get(_MESSAGE_TYPE) or MessageType.NORMAL).upper())
        except ValueError:
            # A type of a newer broker: what it takes is the broker's to say.
            kind = MessageType.UNSPECIFIED
        return cls(str(data.get("topicName") or ""), kind)


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """The n-th retry comes after `initial * multiplier ** n`, at most `longest` (ms)."""

    initial: int = 5_000
    longest: int = 7_200_000
    multiplier: float = 2.0

    def delay(self, attempt: int) -> int:
        """How long after the `attempt`-th delivery (from 1) the next one comes, in ms."""
        exponent = min(max(attempt, 1) - 1, 32)
        try:
            return min(int(self.initial * self.multiplier**exponent), self.longest)
        except (OverflowError, ValueError):
            # The multiplier is whatever somebody told the broker.
            return self.longest


@dataclass(frozen=True, slots=True)
class CustomizedBackoff:
    """The n-th retry comes after the n-th of these times (ms), later ones after the last."""

    delays: tuple[int, ...] = DEFAULT_BACKOFF

    def delay(self, attempt: int) -> int:
        """How long after the `attempt`-th delivery (from 1) the next one comes, in ms."""
        return self.delays[min(max(attempt, 1), len(self.delays)) - 1]


Backoff = ExponentialBackoff | CustomizedBackoff


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A consumer group. retries: how often a message is delivered again before it goes to the dead letter queue.
    assumed: no broker has told this, it stands in until one does."""

    name: str
    orderly: bool = False
    retries: int = _DEFAULT_RETRIES
    backoff: Backoff = CustomizedBackoff()
    consume_enable: bool = True
    lite_subscription_quota: int | None = None
    assumed: bool = field(default=False, compare=False)

    @property
    def max_attempts(self) -> int:
        """How often a message is delivered at all; once where the configuration says never. 32 bits, as in Java."""
        return min(max(self.retries, 0) + 1, _MAX_INT)

    @classmethod
    def parse(cls, body: bytes) -> "GroupConfig":
        """Read SubscriptionGroupConfig. Raises BodyError."""
        data = load_object(body)
        try:
            quota = (data.get("attributes") or {}).get(_LITE_SUBSCRIPTION_QUOTA)
            return cls(
                str(data.get("groupName") or ""),
                bool(data.get("consumeMessageOrderly", False)),
                int(data.get("retryMaxTimes", _DEFAULT_RETRIES)),
                _backoff(data.get("groupRetryPolicy") or {}),
                bool(data.get("consumeEnable", True)),
                None if quota is None else int(quota),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"a group's configuration cannot be read: {error}") from None


def _backoff(policy: Mapping[str, Any]) -> Backoff:
    if policy.get("type") == "EXPONENTIAL":
        values = policy.get("exponentialRetryPolicy") or {}
        default = ExponentialBackoff()
        return ExponentialBackoff(
            int(values.get("initial", default.initial)),
            int(values.get("max", default.longest)),
            float(values.get("multiplier", default.multiplier)),
        )
    delays = tuple(int(delay) for delay in (policy.get("customizedRetryPolicy") or {}).get("next") or ())
    return CustomizedBackoff(delays) if delays else CustomizedBackoff()

"""The broker's own topics, and the validation of names of topics and groups (RocketMQ's TopicValidator)."""

import re

from remoting.errors import InvalidRequest
from remoting.names import (
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    MAX_CREATED_GROUP_LENGTH,
    MAX_RETRY_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    UNCHECKED_TOPIC,
)

# System topics of every broker, with their numbers of queues.
FIXED_TOPICS = {
    SELF_TEST_TOPIC: 1,
    BENCHMARK_TOPIC: 1024,
    OFFSET_MOVED_TOPIC: 1,
    SCHEDULE_TOPIC: 18,
    TRACE_TOPIC: 1,
    HALF_TOPIC: 1,
    OP_TOPIC: 1,
    TIMER_TOPIC: 1,
}
# Topics that no client may send to.
FORBIDDEN_TOPICS = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, UNCHECKED_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC)
)

_VALID = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    """Raise InvalidRequest for an invalid name of a topic."""
    if not topic.strip():
        raise InvalidRequest("the topic is blank")
    # Brokers create v2 retry topics, with a character that is invalid elsewhere.
    if _VALID.fullmatch(topic.replace("+", "") if topic.startswith(RETRY_PREFIX) else topic) is None:
        raise InvalidRequest(f"the topic {topic[:80]!r} has characters other than letters, digits and %|_-")
    maximum = MAX_RETRY_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else MAX_TOPIC_LENGTH
    if len(topic) > maximum:
        raise InvalidRequest(f"a topic of {len(topic)} characters is longer than {maximum}")


def is_group(group: str) -> bool:
    """Return whether a name is valid for a group."""
    return _VALID.fullmatch(group) is not None and len(group) <= MAX_CREATED_GROUP_LENGTH

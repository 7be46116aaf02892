"""Names of topics and groups: system names, retry topics, validation (RocketMQ's TopicValidator)."""

import re

from remoting.errors import InvalidRequest
from remoting.names import (
    DLQ_PREFIX,
    MAX_CREATED_GROUP_LENGTH,
    MAX_RETRY_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    RETRY_PREFIX,
    TIMER_TOPIC,
    TOOLS_GROUP,
    TRACE_TOPIC,
)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
UNCHECKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
_BENCHMARK_TOPIC = "BenchmarkTest"
_OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

# System topics of every broker, with their numbers of queues.
FIXED_TOPICS = {
    _SELF_TEST_TOPIC: 1,
    _BENCHMARK_TOPIC: 1024,
    _OFFSET_MOVED_TOPIC: 1,
    SCHEDULE_TOPIC: 18,
    TRACE_TOPIC: 1,
    HALF_TOPIC: 1,
    OP_TOPIC: 1,
    TIMER_TOPIC: 1,
}
# Topics that no client may send to.
FORBIDDEN_TOPICS = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, UNCHECKED_TOPIC, _SELF_TEST_TOPIC, _OFFSET_MOVED_TOPIC)
)

# Consumer groups of every broker.
SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

_VALID = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Return the topic of the messages that a group's members sent back."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of the messages that a group could not consume."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, v2: bool) -> str:
    """Return the topic of messages that a group popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def reply_topic(cluster: str) -> str:
    """Return the topic of the replies to request messages."""
    return f"{cluster}_REPLY_TOPIC"


def retry_group(topic: str) -> str:
    """Return the group of a retry topic, also of a v2 topic of a popping group (RocketMQ's KeyBuilder.parseGroup)."""
    name = topic.removeprefix(RETRY_PREFIX)
    return name.partition("+")[0] if "+" in name else name


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

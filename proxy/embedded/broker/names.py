"""Names of topics and groups: which mean something to brokers, which are valid (RocketMQ's TopicValidator)."""

import re

from remoting.errors import InvalidRequest
from remoting.names import DLQ_PREFIX, RETRY_PREFIX

DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
UNCHECKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
_BENCHMARK_TOPIC = "BenchmarkTest"
_OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

# System topics that are the same on every broker, with their number of queues.
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

# Consumer groups that are there from the start.
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

_VALID = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONGEST_TOPIC = 127
_LONGEST_RETRY_TOPIC = 255
_LONGEST_GROUP = 120


def retry_topic(group: str) -> str:
    """Where messages that a group's members sent back wait."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages go that a group could not consume."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, v2: bool) -> str:
    """Where messages go that were popped and not acknowledged."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def reply_topic(cluster: str) -> str:
    """Where replies to requests are stored."""
    return f"{cluster}_REPLY_TOPIC"


def retry_group(topic: str) -> str:
    """The group of a retry topic; of a popping group's new retry topic too (RocketMQ's KeyBuilder.parseGroup)."""
    name = topic.removeprefix(RETRY_PREFIX)
    return name.partition("+")[0] if "+" in name else name


def check_topic(topic: str) -> None:
    """Raise InvalidRequest for what cannot be a topic."""
    if not topic.strip():
        raise InvalidRequest("the topic is blank")
    # The new retry topics are made by brokers, with a character that nobody else may use.
    if _VALID.fullmatch(topic.replace("+", "") if topic.startswith(RETRY_PREFIX) else topic) is None:
        raise InvalidRequest(f"the topic {topic[:80]!r} has characters other than letters, digits and %|_-")
    longest = _LONGEST_RETRY_TOPIC if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else _LONGEST_TOPIC
    if len(topic) > longest:
        raise InvalidRequest(f"a topic of {len(topic)} characters is longer than {longest}")


def is_group(group: str) -> bool:
    """Whether this can be a group's name."""
    return _VALID.fullmatch(group) is not None and len(group) <= _LONGEST_GROUP

"""Names of topics and groups with a meaning for brokers (RocketMQ's TopicValidator and MixAll), and their lengths."""

from typing import Final

# Prefixes of a consumer group's name: its retry topic and its dead letter topic.
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

# Prefix of a light message queue, an index of messages that are stored in another topic. That of a lite topic is
# `%LMQ%$PARENT$NAME` (LiteUtil of RocketMQ 5.5).
LMQ_PREFIX: Final = "%LMQ%"
LITE_SEPARATOR: Final = "$"
_LITE_PREFIX: Final = LMQ_PREFIX + LITE_SEPARATOR

# Maximum length in characters of a topic, and of a retry or dead letter topic, which has a group's name in its own.
MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
# Maximum length in characters of a group that a tool creates or a gRPC client names (TopicValidator.GROUP_MAX_LENGTH).
MAX_CREATED_GROUP_LENGTH: Final = 120
# Maximum length in characters of the group that a remoting client joins (Validators.CHARACTER_MAX_LENGTH). Brokers that
# create a group with its first consumer accept it too.
MAX_MEMBER_GROUP_LENGTH: Final = 255
# Maximum length in characters of any name in a request: the retry topic of such a group.
MAX_NAME_LENGTH: Final = len(RETRY_PREFIX) + MAX_MEMBER_GROUP_LENGTH

# The model of topics that brokers create at the first send; every send has to name it.
DEFAULT_TOPIC: Final = "TBW102"

# Clients send their traces to the default topic, or to the one of their region (TraceConstants.TRACE_TOPIC_PREFIX).
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_REGION_TRACE_PREFIX = "rmq_sys_TRACE_DATA_"

# The brokers' topic of delayed messages.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

# A consumer group of every broker, for tools (MixAll.TOOLS_CONSUMER_GROUP).
TOOLS_GROUP: Final = "TOOLS_CONSUMER"

# Topics that brokers use internally.
SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        TRACE_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_PREFIX = "rmq_sys_"
_LIST_SEPARATOR = ";"


def is_system(topic: str) -> bool:
    """Return whether brokers use a topic internally."""
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def is_internal(topic: str) -> bool:
    """Return whether brokers use a topic internally and clients do not, as they do the model topic and trace topics.

    RocketMQ 5.5 has topics that begin with the prefix in upper case.
    """
    if topic in (DEFAULT_TOPIC, TRACE_TOPIC) or topic.startswith(_REGION_TRACE_PREFIX):
        return False
    return topic in SYSTEM_TOPICS or topic[: len(_SYSTEM_PREFIX)].lower() == _SYSTEM_PREFIX


def parent_topic(queue: str) -> str | None:
    """Return the topic that has the messages of a lite topic's queue; None for other names."""
    parent, separator, name = queue.removeprefix(_LITE_PREFIX).partition(LITE_SEPARATOR)
    return parent if queue.startswith(_LITE_PREFIX) and parent and separator and name else None


def listed(text: str) -> tuple[str, ...]:
    """Return the names in a list, such as the topicList of a GET_CONSUME_STATS; none if it is blank."""
    return tuple(filter(None, text.split(_LIST_SEPARATOR))) if text.strip() else ()

"""Names of topics and groups with a meaning for brokers (RocketMQ's TopicValidator and MixAll), and their lengths."""

from collections.abc import Iterable
from typing import Final

# Prefixes of a consumer group's name: its retry topic and its dead letter topic.
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
# Between group and topic in the name of a pop retry topic: by default, and with enableRetryTopicV2.
OLD_POP_SEPARATOR: Final = "_"
POP_SEPARATOR: Final = "+"

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

# The brokers' topics of delayed messages: with a time, and with a delay level.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

# The brokers' topics of transactions: half messages, their ends, and those that were checked too often.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
UNCHECKED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# Further topics that every broker creates at its start.
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

# Topics in which proxies share state, unless their settings name others: group members, also of the official Java
# proxies, and renewals of invisible durations.
MEMBER_SYNC_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
RENEWAL_SYNC_TOPIC: Final = "GantryRenewals"

# Response field of Gantry with the names of these topics, for its command line. Java clients ignore fields that they do
# not know (RemotingCommand.decodeCommandCustomHeader).
SYNC_TOPICS_FIELD: Final = "gantrySyncTopics"

# A consumer group of every broker, for tools (MixAll.TOOLS_CONSUMER_GROUP).
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
# All consumer groups of every broker.
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

# Topics that brokers use internally.
SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        UNCHECKED_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
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


def sync_group(topic: str) -> str:
    """Return the consumer group in which proxies read a topic that they share (AbstractSystemMessageSyncer)."""
    return f"CID_{topic}"


def retry_topic(group: str) -> str:
    """Return the topic of the messages that a group's members sent back."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of the messages that a group could not consume."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, v2: bool) -> str:
    """Return the topic of messages that a group popped and did not acknowledge. v2: as with enableRetryTopicV2."""
    return f"{RETRY_PREFIX}{group}{POP_SEPARATOR if v2 else OLD_POP_SEPARATOR}{topic}"


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Return both names of a pop retry topic: the default one, and that of enableRetryTopicV2."""
    return pop_retry_topic(topic, group, False), pop_retry_topic(topic, group, True)


def is_pop_retry_topic(topic: str, group: str) -> bool:
    """Return whether a topic is a pop retry topic of the group.

    `%RETRY%group_topic` could also be the retry topic of a group `group_topic`.
    """
    return bool(group) and topic.startswith(pop_retry_topics("", group))


def popped_topic(topic: str, group: str) -> str:
    """Return the topic that a pop retry topic of the group belongs to; all other names unchanged."""
    if topic.startswith(RETRY_PREFIX) and is_pop_retry_topic(topic, group):
        return topic[len(RETRY_PREFIX) + len(group) + 1 :]
    return topic


def retry_group(topic: str) -> str:
    """Return the group of a retry topic, also of a v2 topic of a popping group (RocketMQ's KeyBuilder.parseGroup)."""
    return topic.removeprefix(RETRY_PREFIX).partition(POP_SEPARATOR)[0]


def reply_topic(cluster: str) -> str:
    """Return the topic of the replies to request messages."""
    return f"{cluster}_REPLY_TOPIC"


def parent_topic(queue: str) -> str | None:
    """Return the topic that has the messages of a lite topic's queue; None for other names."""
    parent, separator, name = queue.removeprefix(_LITE_PREFIX).partition(LITE_SEPARATOR)
    return parent if queue.startswith(_LITE_PREFIX) and parent and separator and name else None


def list_of(names: Iterable[str]) -> str:
    """Return names as the text of a list; see `listed`."""
    return _LIST_SEPARATOR.join(sorted(names))


def listed(text: str) -> tuple[str, ...]:
    """Return the names in a list, such as the topicList of a GET_CONSUME_STATS; none if it is blank."""
    return tuple(filter(None, text.split(_LIST_SEPARATOR))) if text.strip() else ()

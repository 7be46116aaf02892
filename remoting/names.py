"""Topic names with a meaning for brokers (RocketMQ's TopicValidator and MixAll)."""

# Prefixes of a consumer group's name: its retry topic and its dead letter topic.
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

# The model of topics that brokers create at the first send; every send has to name it.
DEFAULT_TOPIC = "TBW102"

# Topics that brokers use internally.
SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_PREFIX = "rmq_sys_"


def is_system(topic: str) -> bool:
    """Return whether brokers use a topic internally."""
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)

"""Topics that belong to brokers, proxies or consumer groups, and are not created or deleted as those of clients are."""

from collections.abc import Collection, Iterable

from remoting.names import (
    DLQ_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    dead_letter_topic,
    is_internal,
    is_pop_retry_topic,
    is_system,
    reply_topic,
    retry_topic,
)

_GROUP_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
# Prefix of consumer groups of brokers (MixAll.isSysConsumerGroup).
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
# Prefixes of topics that no application has created. RocketMQ 5.4 has topics of its RocksDB stores.
_SYSTEM_PREFIXES = (*_GROUP_PREFIXES, "RMQ_SYS_", _SYSTEM_GROUP_PREFIX)
_RESERVED = {
    RETRY_PREFIX: "those of retry topics of consumer groups",
    DLQ_PREFIX: "those of dead letter topics of consumer groups",
    LMQ_PREFIX: "those of light message queues",
}


def has_system_name(topic: str) -> bool:
    """Return whether a topic has a name of brokers, or of retries, dead letters and replies."""
    return is_system(topic) or topic.startswith(_SYSTEM_PREFIXES) or topic.endswith("_REPLY_TOPIC")


def may_belong_to_group(topic: str) -> bool:
    """Return whether a topic has the name of a retry or dead letter topic."""
    return topic.startswith(_GROUP_PREFIXES)


def broker_topics(brokers: Iterable[str], clusters: Collection[str]) -> set[str]:
    """Return the topics that brokers create with their own names and their clusters' (TopicConfigManager.init)."""
    return {*brokers, *clusters, *map(reply_topic, clusters)}


def fixed_owner(
    topic: str, brokers: Collection[str], clusters: Collection[str], proxy_topics: Collection[str]
) -> str | None:
    """Return the owner of a topic, such as `the brokers`; None: no broker and no proxy.

    proxy_topics: those that proxies write and read themselves.
    """
    if topic in proxy_topics:
        return "Gantry"
    own = topic in broker_topics(brokers, clusters) or is_system(topic) or is_internal(topic)
    return "the brokers" if own else None


def reserved_topic(topic: str, brokers: Collection[str], clusters: Collection[str]) -> str | None:
    """Return the reason why no topic of this name is created by hand; None: it may be."""
    return _reserved(topic) or (
        f"{topic} is a topic of the brokers" if fixed_owner(topic, brokers, clusters, ()) else None
    )


def reserved_group(group: str) -> str | None:
    """Return the reason why no consumer group of this name is created by hand; None: it may be."""
    system = group in SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)
    return _reserved(group) or (f"{group} is a consumer group of the brokers" if system else None)


def _reserved(name: str) -> str | None:
    return next(
        (f"names that begin with {prefix} are {kind}" for prefix, kind in _RESERVED.items() if name.startswith(prefix)),
        None,
    )


def group_owner(topic: str, groups: Iterable[str]) -> str | None:
    """Return the consumer group, as in `consumer group billing`, that a retry or dead letter topic belongs to.

    None: none of these groups. The pop retry topic of the group `a` and the topic `b_c` may be that of `a_b` and `c`.
    """
    for group in groups:
        if topic in (retry_topic(group), dead_letter_topic(group)) or is_pop_retry_topic(topic, group):
            return f"consumer group {group}"
    return None

"""Topics and consumer groups of the brokers, with their configurations and statistics."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.operations import topic_owners
from proxy.operations.groups import offset_table
from proxy.operations.groups.offset_table import QueueOffsets
from proxy.tools.cli.client import Client, CommandError
from proxy.tools.cli.output import warn
from proxy.tools.cli.reading import Queue
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import load_object
from remoting.names import (
    MEMBER_SYNC_TOPIC,
    RENEWAL_SYNC_TOPIC,
    SYNC_TOPICS_FIELD,
    SYSTEM_GROUPS,
    listed,
    sync_group,
)
from remoting.topic_group_config import MESSAGE_TYPE_ATTRIBUTE, completion_obstacle

_C = RequestCode
# Maximum number of concurrent requests.
_MAX_CONCURRENT = 32
# Topics in which proxies share state, by their default names, for servers that do not name theirs.
SYNC_TOPICS = frozenset({MEMBER_SYNC_TOPIC, RENEWAL_SYNC_TOPIC})
_T = TypeVar("_T")

# Configurations by broker name.
Configurations = dict[str, dict[str, Any]]


async def gather_bounded(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all, with bounded concurrency; return the results in order."""
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

    async def bounded(item: Awaitable[_T]) -> _T:
        async with semaphore:
            return await item

    return await asyncio.gather(*map(bounded, work))


# Topics.


async def topics(client: Client, *, system: bool = False) -> dict[str, Configurations]:
    """Return TopicConfig of every topic by name, sorted. system: include topics of brokers and proxies, retry and
    dead-letter topics.
    """
    brokers = await client.brokers()
    found, shared = await _tables(client, brokers, _C.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
    own = topic_owners.broker_topics(brokers, brokers.values()) | shared
    return {
        name: item for name, item in found.items() if system or not (name in own or topic_owners.has_system_name(name))
    }


async def _tables(
    client: Client, brokers: Iterable[str], code: RequestCode, key: str
) -> tuple[dict[str, Configurations], set[str]]:
    """Return the tables of all brokers as one, sorted, and the topics in which proxies share state."""
    order = sorted(brokers)
    replies = await gather_bounded(client.ask(code, {"bname": broker}) for broker in order)
    found: dict[str, Configurations] = {}
    shared = set(SYNC_TOPICS)
    for broker, reply in zip(order, replies, strict=True):
        for name, item in (load_object(reply.body).get(key) or {}).items():
            found.setdefault(str(name), {})[broker] = item
        shared.update(listed(reply.fields.get(SYNC_TOPICS_FIELD, "")))
    return dict(sorted(found.items())), shared


def message_type(configurations: Configurations) -> str:
    """Return the message type of a topic."""
    kinds = {
        str((item.get("attributes") or {}).get(MESSAGE_TYPE_ATTRIBUTE) or "NORMAL") for item in configurations.values()
    }
    return "/".join(sorted(kinds))


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue's first offset, the offset after its last message, and the time of the last message (ms since 1970; 0:
    none).
    """

    queue: Queue
    first: int
    end: int
    updated: int

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return self.end - self.first


async def topic_stats(client: Client, topic: str, brokers: Iterable[str]) -> list[QueueStats]:
    """Return all queues of a topic, sorted."""
    replies = [await client.ask(_C.GET_TOPIC_STATS_INFO, {"topic": topic, "bname": broker}) for broker in brokers]
    rows = [pair for reply in replies for pair in offset_table.offset_table(reply.body)]
    return sorted(
        (
            QueueStats(Queue(*key), int(row["minOffset"]), int(row["maxOffset"]), int(row["lastUpdateTimestamp"]))
            for key, row in rows
        ),
        key=lambda stats: stats.queue,
    )


async def missing(client: Client, configurations: Configurations) -> list[str]:
    """Return the brokers without a topic or group."""
    return [broker for broker in sorted(await client.brokers()) if broker not in configurations]


def check_reserved(reason: str | None) -> None:
    """Raise CommandError for a name that is reserved, with the reason."""
    if reason is not None:
        raise CommandError(f"{reason}: choose another name")


def check_completion(item: str, noun: str, differences: Mapping[str, str | None], missing: Sequence[str]) -> None:
    """Raise CommandError if an existing item has no broker to be added at, or is to be another there.

    noun: `topics` or `groups`; differences: by broker with the item.
    """
    update = f"`gantry {noun} update`"
    obstacle = completion_obstacle(differences, missing, f"{update} changes it", f"change it first with {update}")
    if obstacle is not None:
        raise CommandError(f"{item} {obstacle}")


def warn_of_missing(item: str, noun: str, missing: Sequence[str]) -> None:
    """Write a warning if there are brokers without the item."""
    if missing:
        warn(
            f"{item} is missing at {', '.join(missing)}; `gantry {noun} create` with the same definition adds it there"
        )


# Groups.


async def groups(client: Client, *, system: bool = False) -> dict[str, Configurations]:
    """Return SubscriptionGroupConfig of every group by name, sorted. system: include groups of brokers and proxies."""
    brokers = await client.brokers()
    found, shared = await _tables(client, brokers, _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable")
    own = {*SYSTEM_GROUPS, *map(sync_group, shared)}
    return {name: item for name, item in found.items() if system or name not in own}


async def progress(client: Client, group: str, brokers: Iterable[str]) -> list[QueueOffsets]:
    """Return the progress in every queue that the group has consumed from, sorted."""
    replies = [await client.ask(_C.GET_CONSUME_STATS, {"consumerGroup": group, "bname": broker}) for broker in brokers]
    return sorted((row for reply in replies for row in offset_table.progress(reply.body)), key=lambda row: row.key)


async def members(client: Client, group: str) -> list[dict[str, Any]]:
    """Return the group's connections (RocketMQ's Connection: clientId, clientAddr, language, version), by client id."""
    offline = frozenset((int(ResponseCode.CONSUMER_NOT_ONLINE),))
    reply = await client.ask(_C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}, accept=offline)
    if reply.code != ResponseCode.SUCCESS:
        return []
    found = load_object(reply.body).get("connectionSet") or []
    return sorted(found, key=lambda item: str(item.get("clientId")))

"""Topics and consumer groups at the brokers: created, changed, deleted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, StrictBool

from proxy.operations import broker_requests, topic_owners
from proxy.operations.failures import Failure, FailureKind, OperationFailed, conflict, not_found
from proxy.operations.groups.groups import check_empty
from proxy.operations.groups.known_groups import consumer_groups
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.topic_queues import queues_of
from proxy.operations.values import NO_BOOLEAN, Answer, Name, RequestBody
from remoting.codes import RequestCode
from remoting.fastjson import load_object
from remoting.messages import READ_AND_WRITE, Permission
from remoting.names import retry_topic
from remoting.topic_group_config import (
    MAX_QUEUES,
    MAX_RETRIES,
    MESSAGE_TYPE_ATTRIBUTE,
    NEW_GROUP,
    changed_group,
    changed_topic,
    completion_obstacle,
    copied_group,
    copied_topic,
    group_changes,
    group_difference,
    topic_difference,
    topic_fields,
)

_PERMISSIONS = {"RW": READ_AND_WRITE, "R": int(Permission.READ), "W": int(Permission.WRITE), "none": 0}
_Queues = Annotated[int, Field(ge=1, le=MAX_QUEUES), NO_BOOLEAN]
_Retries = Annotated[int, Field(ge=0, le=MAX_RETRIES), NO_BOOLEAN]
TopicKind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"]
PermissionName = Literal["RW", "R", "W", "none"]
# Configurations by broker.
_Configurations = dict[str, dict[str, Any]]


class TopicOrder(RequestBody):
    """A topic to create at every broker without it."""

    name: Name = Field(examples=["orders"])
    kind: TopicKind = "NORMAL"
    queues: _Queues = Field(8, description="message queues at each broker")
    permission: PermissionName = Field("RW", description="whether clients may read and write")


class TopicUpdate(RequestBody):
    """Changes of a topic; null: as before. Fewer queues hide the messages of the others."""

    kind: TopicKind | None = None
    queues: _Queues | None = Field(None, description="message queues at each broker")
    permission: PermissionName | None = Field(None, description="whether clients may read and write")
    confirm: StrictBool = Field(
        False, description="also change the type of messages, or remove queues that hold messages; otherwise 409"
    )


class TopicDefinition(Answer):
    """A topic as the brokers have it."""

    name: str = Field(examples=["orders"])
    kind: str = Field(examples=["NORMAL"])
    queues: int = Field(description="message queues at each broker, of the broker with the most")
    permission: str = Field(examples=["RW"])
    brokers: list[str] = Field(examples=[["broker-a"]])
    missing: list[str] = Field(description="brokers without it; creating it again adds it there", examples=[[]])


class GroupOrder(RequestBody):
    """A consumer group to create at every broker without it."""

    name: Name = Field(examples=["orders-billing"])
    fifo: StrictBool = Field(
        False, description="deliver in order: one unacknowledged message per queue or message group"
    )
    retries: _Retries = Field(16, description="redeliveries before a message is a dead letter")
    enabled: StrictBool = Field(True, description="whether the group may consume")


class GroupUpdate(RequestBody):
    """Changes of a consumer group; null: as before."""

    fifo: StrictBool | None = None
    retries: _Retries | None = Field(None, description="redeliveries before a dead letter")
    enabled: StrictBool | None = Field(None, description="whether the group may consume")


class GroupDefinition(Answer):
    """A consumer group as the brokers have it."""

    name: str = Field(examples=["orders-billing"])
    fifo: bool
    retries: int
    enabled: bool = Field(description="whether the group may consume at every broker")
    brokers: list[str] = Field(examples=[["broker-a"]])
    missing: list[str] = Field(description="brokers without it; creating it again adds it there", examples=[[]])


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Changes of a topic."""

    topic: str
    changes: TopicUpdate


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Changes of a consumer group."""

    group: str
    changes: GroupUpdate


# Topics.


@operation("topics.create", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def create_topic(services: AdminServices, order: TopicOrder) -> TopicDefinition:
    """Create a topic at the brokers without it; where others have it, with their further properties.

    Raises OperationFailed if it has a name of the brokers, each broker has it, or one with another definition,
    RemotingError.
    """
    clusters = await services.replica.core.backend.clusters()
    _check_name(topic_owners.reserved_topic(order.name, clusters, set(clusters.values())))
    permission = _PERMISSIONS[order.permission]
    found = await _topics(services, order.name)
    missing = await _missing(services, found)
    if found:
        differences = {
            broker: topic_difference(item, order.kind, order.queues, permission) for broker, item in found.items()
        }
        _check_completion(f"topic {order.name}", differences, missing)
        fields = copied_topic(order.name, next(iter(found.values())))
    else:
        fields = topic_fields(order.name, order.kind, order.queues, order.queues, permission)
    await _at_all(missing, lambda broker: _put_topic(services, broker, fields))
    return await _topic(services, order.name)


@operation("topics.update", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def update_topic(services: AdminServices, change: TopicChange) -> TopicDefinition:
    """Change a topic at the brokers that have it. Raises OperationFailed, RemotingError."""
    found, changes = await _known_topic(services, change.topic), change.changes
    if not changes.confirm:
        await _check_harmless(services, change, found)

    permission = None if changes.permission is None else _PERMISSIONS[changes.permission]

    def put(broker: str) -> Awaitable[None]:
        fields = changed_topic(change.topic, found[broker], changes.kind, changes.queues, permission)
        return _put_topic(services, broker, fields)

    await _at_all(found, put)
    return await _topic(services, change.topic)


@operation("topics.delete", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def delete_topic(services: AdminServices, topic: str) -> None:
    """Delete a topic with its messages at every broker and name server. Raises OperationFailed, RemotingError."""
    owner = await _owner(services, topic)
    if owner is not None:
        raise conflict(f"{topic} belongs to {owner}")
    core, found = services.replica.core, await _known_topic(services, topic)
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    await _at_all(found, lambda broker: broker_requests.ask(core, broker, code, {"topic": topic}))
    await core.backend.forget_topic(topic)


async def _check_harmless(services: AdminServices, change: TopicChange, found: _Configurations) -> None:
    """Raise OperationFailed for a change that needs a confirmation, RemotingError if a broker does not answer."""
    kind, queues = change.changes.kind, change.changes.queues
    others = sorted({_kind(item) for item in found.values()}.difference((kind,)))
    if kind is not None and others:
        raise conflict(f"the topic {change.topic} is of type {'/'.join(others)}: `confirm` changes it to {kind}")
    if queues is None:
        return
    core, hidden = services.replica.core, 0
    for broker, item in found.items():
        if queues < max(int(item["readQueueNums"]), int(item["writeQueueNums"])):
            reply = await broker_requests.ask(core, broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": change.topic})
            hidden += sum(row.messages for row in queues_of(reply.body) if row.queue >= queues)
    if hidden:
        detail = f"{hidden:,} messages are in queues that the topic {change.topic} would lose: `confirm` removes them"
        raise conflict(detail)


async def _owner(services: AdminServices, topic: str) -> str | None:
    """Return the owner of a topic; None: its clients. Raises OperationFailed if a broker that may know is silent."""
    replica = services.replica
    clusters = await replica.core.backend.clusters()
    owner = topic_owners.fixed_owner(topic, clusters, set(clusters.values()), replica.settings.own_topics)
    if owner is not None or not topic_owners.may_belong_to_group(topic):
        return owner
    groups, unanswered = await consumer_groups(replica)
    owner = topic_owners.group_owner(topic, sorted(groups))
    if owner is None and unanswered:
        detail = f"it is not known whether {topic} belongs to a consumer group: no answer from {', '.join(unanswered)}"
        raise OperationFailed(Failure(FailureKind.UNAVAILABLE, detail))
    return owner


async def _put_topic(services: AdminServices, broker: str, fields: dict[str, str]) -> None:
    await broker_requests.ask(services.replica.core, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


async def _topic(services: AdminServices, name: str) -> TopicDefinition:
    found = await _known_topic(services, name)
    first = next(iter(found.values()))
    permission = int(first["perm"]) & READ_AND_WRITE
    return TopicDefinition(
        name=name,
        kind=_kind(first),
        queues=max(int(item["writeQueueNums"]) for item in found.values()),
        permission=next(text for text, bits in _PERMISSIONS.items() if bits == permission),
        brokers=list(found),
        missing=await _missing(services, found),
    )


async def _topics(services: AdminServices, name: str) -> _Configurations:
    return await _configurations(services, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable", name)


async def _known_topic(services: AdminServices, name: str) -> _Configurations:
    found = await _topics(services, name)
    if not found:
        raise not_found(f"there is no topic {name}")
    return found


def _kind(item: Mapping[str, Any]) -> str:
    return str((item.get("attributes") or {}).get(MESSAGE_TYPE_ATTRIBUTE) or "NORMAL")


# Consumer groups.


@operation("groups.create", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def create_group(services: AdminServices, order: GroupOrder) -> GroupDefinition:
    """Create a consumer group at the brokers without it. Raises as `create_topic` does."""
    _check_name(topic_owners.reserved_group(order.name))
    changes = group_changes(order.fifo, order.retries, order.enabled)
    found = await _groups(services, order.name)
    missing = await _missing(services, found)
    configuration: dict[str, object] = {**NEW_GROUP, "groupName": order.name, **changes}
    if found:
        differences = {broker: group_difference(item, changes) for broker, item in found.items()}
        _check_completion(f"consumer group {order.name}", differences, missing)
        configuration = copied_group(next(iter(found.values())))
    await _at_all(missing, lambda broker: _put_group(services, broker, configuration))
    return await get_group(services, order.name)


@operation("groups.definition", timeout=REMOTE_TIMEOUT, merged=False)
async def get_group(services: AdminServices, group: str) -> GroupDefinition:
    """Return a consumer group's definition. Raises OperationFailed, RemotingError."""
    found = await _known_group(services, group)
    first = next(iter(found.values()))
    return GroupDefinition(
        name=group,
        fifo=bool(first.get("consumeMessageOrderly")),
        retries=int(first.get("retryMaxTimes", NEW_GROUP["retryMaxTimes"])),
        enabled=all(item.get("consumeEnable", True) for item in found.values()),
        brokers=list(found),
        missing=await _missing(services, found),
    )


@operation("groups.update", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def update_group(services: AdminServices, change: GroupChange) -> GroupDefinition:
    """Change a consumer group at the brokers that have it. Raises OperationFailed, RemotingError."""
    found, order = await _known_group(services, change.group), change.changes
    changes = group_changes(order.fifo, order.retries, order.enabled)
    await _at_all(found, lambda broker: _put_group(services, broker, changed_group(found[broker], changes)))
    return await get_group(services, change.group)


@operation("groups.delete", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def delete_group(services: AdminServices, group: str) -> None:
    """Delete a consumer group with its offsets and retries. Raises OperationFailed, RemotingError.

    A group with members is not deleted: their next heartbeat would create it again.
    """
    core, found = services.replica.core, await _known_group(services, group)
    await check_empty(services.replica, group)
    fields = {"groupName": group, "cleanOffset": "true"}
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    await _at_all(found, lambda broker: broker_requests.ask(core, broker, code, fields))
    await core.backend.forget_topic(retry_topic(group))


async def _put_group(services: AdminServices, broker: str, configuration: dict[str, object]) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await broker_requests.ask(services.replica.core, broker, code, {}, orjson.dumps(configuration))


async def _groups(services: AdminServices, name: str) -> _Configurations:
    return await _configurations(services, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", name)


async def _known_group(services: AdminServices, name: str) -> _Configurations:
    found = await _groups(services, name)
    if not found:
        raise not_found(f"there is no consumer group {name}")
    return found


# Names and brokers.


def _check_name(reserved: str | None) -> None:
    """Raise OperationFailed for a name that is reserved, with the reason."""
    if reserved is not None:
        raise OperationFailed(
            Failure(FailureKind.INVALID, f"{reserved}: choose another name", [("body name", reserved)])
        )


async def _brokers(services: AdminServices) -> list[str]:
    return sorted(await services.replica.core.backend.brokers())


async def _missing(services: AdminServices, found: _Configurations) -> list[str]:
    """Return the brokers without a topic or group."""
    return [broker for broker in await _brokers(services) if broker not in found]


def _check_completion(item: str, differences: Mapping[str, str | None], missing: list[str]) -> None:
    """Raise OperationFailed if an existing item has no broker to be added at, or is to be another there.

    differences: by broker with the item.
    """
    obstacle = completion_obstacle(differences, missing, "PATCH changes it", "PATCH it first")
    if obstacle is not None:
        raise conflict(f"the {item} {obstacle}")


async def _configurations(services: AdminServices, code: RequestCode, key: str, name: str) -> _Configurations:
    """Return the configuration of this name at each broker that has one. Raises RemotingError unless all answer."""
    brokers, core = await _brokers(services), services.replica.core
    replies = await asyncio.gather(*(broker_requests.ask(core, broker, code, {}) for broker in brokers))
    tables = [load_object(reply.body).get(key) or {} for reply in replies]
    return {broker: table[name] for broker, table in zip(brokers, tables, strict=True) if name in table}


async def _at_all(brokers: Iterable[str], change: Callable[[str], Awaitable[object]]) -> None:
    """Change something at each broker, one after the other: the first that refuses ends it. Raises RemotingError."""
    for broker in brokers:
        await change(broker)

"""Producer and consumer groups: members, subscriptions, and members that do not agree on these."""

import time
from typing import Any

from pydantic import Field

from proxy.core.client_registry import Member, Role
from proxy.core.handlers.groups import consumer_connections
from proxy.operations import operator_channel
from proxy.operations.replica import Replica
from proxy.operations.values import Answer
from remoting.codes import RequestCode, version_text
from remoting.errors import RemotingError
from remoting.fastjson import load_object
from remoting.names import RETRY_PREFIX


class Subscription(Answer):
    """What a member wants of a topic."""

    topic: str = Field(examples=["orders"])
    expression: str = Field(examples=["*"])
    kind: str = Field(description="TAG or SQL92", examples=["TAG"])


class GroupMember(Answer):
    """A member of a group."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    protocol: str | None = Field(description="null: it is not connected here", examples=["remoting"])
    address: str = Field(examples=["192.0.2.7:51234"])
    language: str = Field(examples=["JAVA"])
    version: str = Field(examples=["5.4.0"])
    heartbeat: float | None = Field(description="seconds since its last heartbeat; null: it came to another replica")


class Consumer(GroupMember):
    """A member of a consumer group."""

    consume_type: str | None = Field(examples=["CONSUME_PASSIVELY"])
    message_model: str | None = Field(examples=["CLUSTERING"])
    consume_from: str | None = Field(examples=["CONSUME_FROM_LAST_OFFSET"])
    subscriptions: list[Subscription] | None = Field(description="null: not known here")


class Variant(Answer):
    """What some members of a group want of a topic. `expression` is null where they do not subscribe to it at all."""

    expression: str | None = Field(examples=["TagA || TagB"])
    kind: str | None = Field(examples=["TAG"])
    client_ids: list[str]


class Skew(Answer):
    """A topic on which the members of a group do not agree: messages get lost, as brokers keep one subscription."""

    topic: str = Field(examples=["orders"])
    variants: list[Variant]


class GroupSummary(Answer):
    """A group with members."""

    name: str = Field(examples=["orders-billing"])
    members: int
    local: int = Field(description="members that are connected here")


class ConsumerGroupSummary(GroupSummary):
    """A consumer group with members."""

    topics: list[str] = Field(examples=[["orders"]])
    skewed: bool = Field(description="whether members want different things of a topic")


class ProducerGroup(Answer):
    """A producer group. For gRPC producers, the group is the topic."""

    name: str = Field(examples=["billing"])
    members: list[GroupMember]


class ConsumerGroup(Answer):
    """A consumer group. Members elsewhere are as brokers know them."""

    name: str = Field(examples=["orders-billing"])
    members: list[Consumer]
    skew: list[Skew]


class NoSuchGroup(Exception):
    """Nobody is in the group, as far as is known."""


def producer_summary(replica: Replica, name: str) -> GroupSummary:
    """A producer group in short."""
    members = replica.registry.members(Role.PRODUCER, name)
    return GroupSummary(name=name, members=len(_ids(members)), local=_local(members))


def consumer_summary(replica: Replica, name: str) -> ConsumerGroupSummary:
    """A consumer group in short."""
    members = replica.registry.members(Role.CONSUMER, name)
    wanted = _wanted(members, name)
    return ConsumerGroupSummary(
        name=name,
        members=len(_ids(members)),
        local=_local(members),
        topics=sorted({topic for subscriptions in wanted.values() for topic in subscriptions}),
        skewed=bool(skew(wanted)),
    )


def producers(replica: Replica, name: str) -> ProducerGroup:
    """A producer group. Raises NoSuchGroup."""
    members = replica.registry.members(Role.PRODUCER, name)
    if not members:
        raise NoSuchGroup(f"no producer of group {name} is connected here")
    return ProducerGroup(name=name, members=[_member(member) for member in _by_id(members)])


async def consumers(replica: Replica, name: str) -> ConsumerGroup:
    """A consumer group: who is here, and whom brokers know besides. Raises NoSuchGroup."""
    members = replica.registry.members(Role.CONSUMER, name)
    here = [_consumer(member, name) for member in _by_id(members)]
    known = {member.client_id for member in here}
    others = [item for item in await _elsewhere(replica, name) if item.client_id not in known]
    if not here and not others:
        raise NoSuchGroup(f"no consumer of group {name} is connected")
    return ConsumerGroup(name=name, members=[*here, *others], skew=skew(_wanted(members, name)))


async def _elsewhere(replica: Replica, name: str) -> list[Consumer]:
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    try:
        reply = await operator_channel.handle(replica.core, consumer_connections, code, {"consumerGroup": name})
        data = load_object(reply.body) if reply.code == 0 else {}
    except (RemotingError, TimeoutError):
        return []
    return [_remote(data, item) for item in data.get("connectionSet") or () if isinstance(item, dict)]


def _remote(group: dict[str, Any], item: dict[str, Any]) -> Consumer:
    version = item.get("version")
    return Consumer(
        client_id=str(item.get("clientId") or ""),
        protocol=None,
        address=str(item.get("clientAddr") or ""),
        language=str(item.get("language") or ""),
        version=version_text(version) if isinstance(version, int) else "",
        heartbeat=None,
        consume_type=_text(group.get("consumeType")),
        message_model=_text(group.get("messageModel")),
        consume_from=_text(group.get("consumeFromWhere")),
        subscriptions=None,
    )


def skew(wanted: dict[str, dict[str, tuple[str, str]]]) -> list[Skew]:
    """Topics of which members want different things. wanted: (expression, kind) by topic, by client id."""
    found = []
    for topic in sorted({topic for subscriptions in wanted.values() for topic in subscriptions}):
        by_variant: dict[tuple[str, str] | None, list[str]] = {}
        for client_id, subscriptions in sorted(wanted.items()):
            by_variant.setdefault(subscriptions.get(topic), []).append(client_id)
        if len(by_variant) > 1:
            variants = [
                Variant(expression=variant and variant[0], kind=variant and variant[1], client_ids=client_ids)
                for variant, client_ids in by_variant.items()
            ]
            found.append(Skew(topic=topic, variants=variants))
    return found


def known(replica: Replica, role: Role, name: str) -> dict[str, Any]:
    """What a summary is made of, for whoever joins it with others: ids, those connected here, what they want."""
    members = replica.registry.members(role, name)
    return {
        "ids": sorted(_ids(members)),
        "local": sorted({member.client_id for member in members if member.channel is not None}),
        "wanted": _wanted(members, name),
    }


def _wanted(members: list[Member], group: str) -> dict[str, dict[str, tuple[str, str]]]:
    # A gRPC consumer has subscribed to its retry topics without saying so.
    return {
        member.client_id: {
            item.topic: (item.expression, item.kind)
            for item in _subscriptions(member, group)
            if not item.topic.startswith(RETRY_PREFIX)
        }
        for member in members
        if group in member.consumer_data
    }


def _subscriptions(member: Member, group: str) -> list[Subscription]:
    part = member.consumer_data.get(group)
    items = [] if part is None else part.data.get("subscriptionDataSet") or []
    return [
        Subscription(
            topic=str(item.get("topic")),
            expression=str(item.get("subString") or "*"),
            kind=str(item.get("expressionType") or "TAG"),
        )
        for item in items
    ]


def _member(member: Member) -> GroupMember:
    return GroupMember(
        client_id=member.client_id,
        protocol=None if member.channel is None else member.channel.protocol,
        address=member.address,
        language=member.language,
        version=version_text(member.version),
        heartbeat=round(max(time.monotonic() - member.last_heartbeat_at, 0.0), 3),
    )


def _consumer(member: Member, group: str) -> Consumer:
    data = member.consumer_data[group].data if group in member.consumer_data else {}
    return Consumer(
        **_member(member).model_dump(),
        consume_type=_text(data.get("consumeType")),
        message_model=_text(data.get("messageModel")),
        consume_from=_text(data.get("consumeFromWhere")),
        subscriptions=_subscriptions(member, group),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _ids(members: list[Member]) -> set[str]:
    return {member.client_id for member in members}


def _local(members: list[Member]) -> int:
    return len({member.client_id for member in members if member.channel is not None})


def _by_id(members: list[Member]) -> list[Member]:
    return sorted(members, key=lambda member: member.client_id)

"""Producer and consumer groups: members, subscriptions, and skew (members whose subscriptions differ)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from proxy.core.client_registry import Member, Role
from proxy.core.handlers.groups import consumer_connections
from proxy.operations import connected_clients, operator_channel, paging
from proxy.operations.failures import Failure, FailureKind, OperationFailed, conflict, not_found
from proxy.operations.groups.group_survey import GroupState, GroupStatus
from proxy.operations.groups.known_groups import check_group
from proxy.operations.operation import BULK_TIMEOUT, REMOTE_TIMEOUT, operation
from proxy.operations.paging import PageRequest, Place
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries, NamedPage
from proxy.operations.values import Answer, Mergeable, Page, Reply, Rules, Timestamp, at_milliseconds, union
from remoting.codes import RequestCode, ResponseCode, version_text
from remoting.errors import ConsumerNotOnline, RemotingError, ServiceUnavailable
from remoting.fastjson import load_object
from remoting.names import RETRY_PREFIX

# Expression and kind of each member's subscriptions: by client id, then by topic.
Subscriptions = Mapping[str, Mapping[str, tuple[str, str]]]


class Subscription(Answer):
    """A member's subscription to a topic."""

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
    heartbeat: float | None = Field(description="seconds since its last heartbeat; null: sent to another replica")


class Consumer(GroupMember):
    """A member of a consumer group."""

    consume_type: str | None = Field(examples=["CONSUME_PASSIVELY"])
    message_model: str | None = Field(examples=["CLUSTERING"])
    consume_from: str | None = Field(examples=["CONSUME_FROM_LAST_OFFSET"])
    subscriptions: list[Subscription] | None = Field(description="null: not known here")


_Member = TypeVar("_Member", bound=GroupMember)


class Variant(Answer):
    """Members of a group with the same subscription to a topic. `expression` is null if they do not subscribe to it."""

    expression: str | None = Field(examples=["TagA || TagB"])
    kind: str | None = Field(examples=["TAG"])
    client_ids: list[str]


class Skew(Answer):
    """A topic to which the members of a group subscribe differently; brokers keep one subscription, so messages are
    lost."""

    topic: str = Field(examples=["orders"])
    variants: list[Variant]


class GroupSummary(Answer):
    """A group with members."""

    name: str = Field(examples=["orders-billing"])
    members: int
    local: int = Field(description="members that are connected here")


class GroupHealth(Answer):
    """The progress of a consumer group; null where it depends on brokers that did not answer, or is not surveyed."""

    state: GroupState | None = Field(description="offline: without members; stuck: messages wait, none is consumed")
    lag: int | None = Field(description="messages that wait in its topics, without retries")
    lag_seconds: float | None = Field(description="age of the oldest of them")
    retry_backlog: int | None = Field(description="messages that wait for their redelivery")
    failing: bool | None = Field(description="whether more than 10 of them wait, and more than it consumes in a minute")
    dead_letters: int | None = Field(description="messages in its dead letter queue")
    rate: float | None = Field(description="consumed messages per second", examples=[120.5])
    last_consumed: Timestamp | None = Field(description="store time of the last consumed message")
    unanswered: list[str] | None = Field(description="brokers that did not answer", examples=[[]])

    @staticmethod
    def fields_of(status: GroupStatus | None) -> dict[str, Any]:
        """Return the fields of a group by its status; None: unknown."""
        if status is None:
            return dict.fromkeys(GroupHealth.model_fields)
        return {
            "state": status.state,
            "lag": status.lag_messages,
            "lag_seconds": status.lag_seconds,
            "retry_backlog": status.retry_backlog,
            "failing": status.failing,
            "dead_letters": status.dead_letters,
            "rate": status.rate,
            "last_consumed": at_milliseconds(status.last_consumed),
            "unanswered": status.unanswered,
        }


@dataclass(frozen=True, slots=True)
class SurveyedGroups:
    """The consumer groups of the latest survey by name, the names of those that it left out, and the brokers that left
    a request of it unanswered.
    """

    statuses: dict[str, GroupStatus]
    left_out: list[str]
    unanswered: list[str]


class ConsumerGroupSummary(GroupSummary, GroupHealth):
    """A consumer group that brokers know, or with members here."""

    topics: list[str] = Field(
        description="topics that its members subscribe to or have consumed", examples=[["orders"]]
    )
    skewed: bool = Field(description="whether the subscriptions of members differ")


class ConsumerGroupPage(Page[ConsumerGroupSummary]):
    """A page of consumer groups."""

    left_out: int = Field(
        description="groups beyond admin.survey_groups: their progress is null here, and no filter by it finds them"
    )
    unanswered: list[str] = Field(
        description="brokers that did not answer: sums with them are null, and no filter finds a group by its messages "
        "there",
        examples=[[]],
    )


def merge_members(values: list[list[_Member]]) -> list[_Member]:
    """Merge members: those connected to some worker by id, then the others, once each."""
    members = [member for value in values for member in value]
    local = sorted((member for member in members if member.protocol is not None), key=lambda member: member.client_id)
    # Some workers know the subscriptions of a member that is connected elsewhere, others only its id.
    others = sorted(
        (member for member in members if member.protocol is None),
        key=lambda member: getattr(member, "subscriptions", None) is None,
    )
    known = {member.client_id for member in local}
    remote: dict[str, _Member] = {}
    for member in others:
        if member.client_id not in known:
            remote.setdefault(member.client_id, member)
    return [*local, *remote.values()]


def merge_subscriptions(values: Sequence[Subscriptions]) -> dict[str, dict[str, tuple[str, str]]]:
    """Merge the subscriptions of clients."""
    merged: dict[str, dict[str, tuple[str, str]]] = {}
    for value in values:
        for client_id, topics in value.items():
            merged.setdefault(client_id, {}).update(topics)
    return merged


class ProducerGroup(Mergeable):
    """A producer group. For gRPC producers, the group is the topic."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {"members": merge_members}

    name: str = Field(examples=["billing"])
    members: list[GroupMember]


class ConsumerGroup(Reply, GroupHealth):
    """A consumer group. Of members that are not connected here, it has the brokers' information."""

    name: str = Field(examples=["orders-billing"])
    members: list[Consumer]
    skew: list[Skew]


class GroupEntry(Mergeable):
    """A group in a list of groups, with the facts that its summary counts."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {
        "client_ids": union,
        "local_client_ids": union,
        "subscriptions": merge_subscriptions,
    }

    name: str
    client_ids: list[str]
    local_client_ids: list[str]
    subscriptions: dict[str, dict[str, tuple[str, str]]]

    @property
    def producer_summary(self) -> GroupSummary:
        """The summary of a producer group."""
        return GroupSummary(name=self.name, members=len(self.client_ids), local=len(self.local_client_ids))

    def consumer_summary(self, status: GroupStatus | None) -> ConsumerGroupSummary:
        """Return the summary of a consumer group with this status; None: unknown."""
        members = len(self.client_ids)
        return ConsumerGroupSummary(
            name=self.name,
            members=members if status is None else max(members, status.members),
            local=len(self.local_client_ids),
            topics=union([*self.subscriptions.values(), () if status is None else status.lag]),
            skewed=bool(skew(self.subscriptions)),
            **GroupHealth.fields_of(status),
        )


class ConsumerGroupEntry(Mergeable):
    """A consumer group with its members' subscriptions."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {"members": merge_members, "subscriptions": merge_subscriptions}

    name: str
    members: list[Consumer]
    subscriptions: dict[str, dict[str, tuple[str, str]]]

    def group(self, status: GroupStatus) -> ConsumerGroup:
        """Return the group with its skew and status."""
        return ConsumerGroup(
            name=self.name,
            members=self.members,
            skew=skew(self.subscriptions),
            **GroupHealth.fields_of(status),
        )


def skew(subscriptions: Subscriptions) -> list[Skew]:
    """Return the topics to which members subscribe differently."""
    found = []
    for topic in union(subscriptions.values()):
        by_variant: dict[tuple[str, str] | None, list[str]] = {}
        for client_id, topics in sorted(subscriptions.items()):
            by_variant.setdefault(topics.get(topic), []).append(client_id)
        if len(by_variant) > 1:
            variants = [
                Variant(expression=variant and variant[0], kind=variant and variant[1], client_ids=client_ids)
                for variant, client_ids in by_variant.items()
            ]
            found.append(Skew(topic=topic, variants=variants))
    return found


# Operations.


@operation("groups.producers")
async def list_producer_groups(services: AdminServices, page: PageRequest) -> NamedPage[GroupEntry]:
    """Return a page of the producer groups with members, by name."""
    return await _page(services, Role.PRODUCER, page)


@operation("groups.consumers")
async def list_consumer_groups(services: AdminServices, page: PageRequest) -> NamedPage[GroupEntry]:
    """Return a page of the consumer groups with members, by name."""
    return await _page(services, Role.CONSUMER, page)


@operation("groups.survey", timeout=BULK_TIMEOUT, merged=False)
async def survey_consumer_groups(services: AdminServices, max_age: float) -> SurveyedGroups:
    """Return the status of the consumer groups, at most `max_age` seconds old.

    Without brokers, it is an unknown one. Raises OperationFailed (UNAVAILABLE) if no survey has succeeded so far: no
    group is known then, which is not the same as none.
    """
    survey = services.survey
    try:
        await survey.refresh(max_age)
    except RemotingError as error:
        if not survey.taken:
            raise OperationFailed(
                Failure(FailureKind.UNAVAILABLE, f"no consumer group is known yet: {error}")
            ) from None
    unanswered = {broker for status in survey.latest.values() for broker in status.unanswered}
    return SurveyedGroups(survey.latest, survey.left_out, sorted(unanswered.union(survey.silent)))


@operation("groups.status", timeout=REMOTE_TIMEOUT, merged=False)
async def get_status(services: AdminServices, group: str) -> GroupStatus:
    """Return the status of a consumer group now. Raises RemotingError."""
    return await services.survey.look(group)


def with_groups_without_members(page: NamedPage[GroupEntry], names: Iterable[str]) -> NamedPage[GroupEntry]:
    """Return a whole list with entries for the other groups of these names."""
    others = set(names).difference(page.names)
    entries = [GroupEntry(name=name, client_ids=[], local_client_ids=[], subscriptions={}) for name in sorted(others)]
    return replace(page, names=sorted({*page.names, *others}), items=[*page.items, *entries])


async def _page(services: AdminServices, role: Role, page: PageRequest) -> NamedPage[GroupEntry]:
    replica = services.replica
    names = [name for name in replica.registry.groups(role) if connected_clients.members(replica, role, name)]
    cut = await paging.cut(names, lambda _: True, lambda name: Place("", 0, name), page)
    items = await paging.described(cut.items, lambda name: _entry(replica, role, name))
    return NamedPage(services.workers.number, sorted(names), items)


def _entry(replica: Replica, role: Role, name: str) -> GroupEntry:
    members = connected_clients.members(replica, role, name)
    return GroupEntry(
        name=name,
        client_ids=sorted({member.client_id for member in members}),
        local_client_ids=sorted({member.client_id for member in members if member.channel is not None}),
        subscriptions=_topics_of(members, name) if role is Role.CONSUMER else {},
    )


@operation("groups.producer")
async def get_producer_group(services: AdminServices, name: str) -> Entries[ProducerGroup]:
    """Return a producer group. Raises OperationFailed."""
    members = connected_clients.members(services.replica, Role.PRODUCER, name)
    if not members:
        raise not_found(f"no producer of group {name} is connected here")
    group = ProducerGroup(name=name, members=[_member(member) for member in _by_id(members)])
    return Entries(services.workers.number, [group])


@operation("groups.consumer", timeout=REMOTE_TIMEOUT)
async def get_consumer_group(services: AdminServices, name: str) -> Entries[ConsumerGroupEntry]:
    """Return a consumer group: the members here, and those that brokers know. Raises OperationFailed."""
    members = services.replica.registry.members(Role.CONSUMER, name)
    group = ConsumerGroupEntry(
        name=name, members=await members_of(services, name), subscriptions=_topics_of(members, name)
    )
    return Entries(services.workers.number, [group])


async def members_of(services: AdminServices, name: str) -> list[Consumer]:
    """Return the members of a consumer group, here and elsewhere. Raises OperationFailed if there is no such group."""
    replica = services.replica
    here = [_consumer(member, name) for member in _by_id(replica.registry.members(Role.CONSUMER, name))]
    known = {member.client_id for member in here}
    others = [member for member in await _members_elsewhere(replica, name) if member.client_id not in known]
    if not here and not others:
        await check_group(replica, name)
    return [*here, *others]


async def check_empty(replica: Replica, name: str) -> None:
    """Check that a consumer group has no members. Raises OperationFailed, also if that cannot be known."""
    members = [member.client_id for member in replica.registry.members(Role.CONSUMER, name)]
    if not members:
        try:
            members = [member.client_id for member in await _ask_for_members(replica, name)]
        except ConsumerNotOnline:
            return
        except (RemotingError, TimeoutError) as error:
            detail = f"it is not known whether the consumer group {name} has members: {error}"
            raise OperationFailed(Failure(FailureKind.UNAVAILABLE, detail)) from None
    if members:
        raise conflict(f"the consumer group {name} has members: {', '.join(members[:3])}")


async def _members_elsewhere(replica: Replica, name: str) -> list[Consumer]:
    try:
        return await _ask_for_members(replica, name)
    except (RemotingError, TimeoutError):
        return []


async def _ask_for_members(replica: Replica, name: str) -> list[Consumer]:
    """Return the members by the first broker that replies. Raises RemotingError, TimeoutError."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    reply = await operator_channel.handle(replica.core, consumer_connections, code, {"consumerGroup": name})
    if reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
        raise ConsumerNotOnline(f"no consumer of group {name} is online")
    if reply.code != ResponseCode.SUCCESS:
        raise ServiceUnavailable(reply.remark or f"response {reply.code}")
    data = load_object(reply.body)
    return [_remote_consumer(data, item) for item in data.get("connectionSet") or () if isinstance(item, dict)]


def _remote_consumer(group: dict[str, Any], item: dict[str, Any]) -> Consumer:
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


def _topics_of(members: list[Member], group: str) -> dict[str, dict[str, tuple[str, str]]]:
    # gRPC consumers subscribe to their retry topics implicitly.
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


def _by_id(members: list[Member]) -> list[Member]:
    return sorted(members, key=lambda member: member.client_id)

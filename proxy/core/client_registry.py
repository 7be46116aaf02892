"""The client registry: who is a member of which producer and consumer group. Sans-io.

Time comes in as an argument, changes come out as `ConsumerGroupChange` values; who is told about them is not
decided here. Members behind other replicas (heartbeat sync) are kept beside our own.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proxy.core.channel import Channel

# Every Java client is in this producer group: it is for messages the client sends for itself.
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"


class Role(StrEnum):
    """What a client is in a group."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of one client, by role."""

    producers: frozenset[str] = frozenset()
    consumers: frozenset[str] = frozenset()

    def __sub__(self, other: "Groups") -> "Groups":
        return Groups(self.producers - other.producers, self.consumers - other.consumers)

    def __or__(self, other: "Groups") -> "Groups":
        return Groups(self.producers | other.producers, self.consumers | other.consumers)

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """How a client takes part in a consumer group: ConsumerData of its heartbeat, as it was sent."""

    data: dict[str, Any]

    @property
    def broadcasting(self) -> bool:
        return self.data.get("messageModel") == "BROADCASTING"


@dataclass(frozen=True, slots=True)
class ConsumerGroupChange:
    """Somebody joined (or changed its subscription in) or left a consumer group."""

    group: str
    member: "Member"
    joined: bool
    consumer_data: ConsumerData


class LeaveCause(StrEnum):
    """Why somebody left a group."""

    UNREGISTERED = "unregistered"
    CLOSED = "closed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """Somebody has joined a group, of producers or of consumers (cause None), or left it."""

    role: Role
    group: str
    member: "Member"
    cause: LeaveCause | None = None


@dataclass(slots=True)
class Member:
    """One client: on a channel of ours, or, where channel is None, behind another proxy.

    key tells members apart; a channel of ours is its own key.
    """

    key: Hashable
    client_id: str
    channel: Channel | None = None
    address: str = ""
    language: str = ""
    version: int = 0
    # Group to the time (seconds) it was last in a heartbeat.
    producers: dict[str, float] = field(default_factory=dict)
    consumers: dict[str, float] = field(default_factory=dict)
    consumer_data: dict[str, ConsumerData] = field(default_factory=dict)

    @property
    def groups(self) -> Groups:
        return Groups(frozenset(self.producers), frozenset(self.consumers))

    @property
    def last_heartbeat_at(self) -> float:
        """When the last heartbeat came."""
        return max((*self.producers.values(), *self.consumers.values()), default=0.0)

    def silent_groups(self, before: float) -> Groups:
        """The groups that have not been in a heartbeat since `before`."""
        return Groups(
            frozenset(group for group, seen in self.producers.items() if seen < before),
            frozenset(group for group, seen in self.consumers.items() if seen < before),
        )


class ClientRegistry:
    """Members by channel and by group. A client with two connections is two members with one client id.

    `listeners` are told of each who joins a group or leaves it; of a changed subscription they are not.
    """

    def __init__(self, expiry: float = 90.0) -> None:
        # Below the brokers' own 120 s: they close the connection of a client that they let expire,
        # and ours may be shared with others.
        self._expiry = expiry
        self._members: dict[Hashable, Member] = {}
        self._groups: dict[tuple[Role, str], dict[Hashable, Member]] = defaultdict(dict)
        self.listeners: list[Callable[[MembershipEvent], None]] = []

    def heartbeat(
        self,
        member: Member,
        producers: Iterable[str],
        consumers: dict[str, ConsumerData],
        now: float,
    ) -> list[ConsumerGroupChange]:
        """Note a heartbeat: its groups are joined, others that the member had stay until unregistered.

        `member` says who it is; a member with this key that is known already is kept.
        """
        key, client_id = member.key, member.client_id
        member = self._members.setdefault(key, member)
        if member.client_id != client_id:
            # The newest name wins; the connection is the same client's.
            member.client_id = client_id
        for group in producers:
            member.producers[group] = now
            self._put(Role.PRODUCER, group, member)
        changes = []
        for group, consumer in consumers.items():
            known = member.consumer_data.get(group)
            if known is None or _topics(known) != _topics(consumer):
                changes.append(ConsumerGroupChange(group, member, True, consumer))
            member.consumer_data[group] = consumer
            member.consumers[group] = now
            self._put(Role.CONSUMER, group, member)
        return changes

    def unregister(
        self, key: Hashable, groups: Groups, cause: LeaveCause = LeaveCause.UNREGISTERED
    ) -> list[ConsumerGroupChange]:
        """A client leaves some of its groups; groups it is not in are of no account."""
        member = self._members.get(key)
        if member is None:
            return []
        for group in groups.producers & member.producers.keys():
            del member.producers[group]
            self._drop(Role.PRODUCER, group, member, cause)
        changes = []
        for group in sorted(groups.consumers & member.consumers.keys()):
            del member.consumers[group]
            consumer = member.consumer_data.pop(group)
            self._drop(Role.CONSUMER, group, member, cause)
            changes.append(ConsumerGroupChange(group, member, False, consumer))
        if not member.producers and not member.consumers:
            del self._members[key]
        return changes

    def expired(self, now: float) -> list[tuple[Member, Groups]]:
        """The groups, by member, of which no heartbeat came for too long; the caller ends them."""
        silent = ((member, member.silent_groups(now - self._expiry)) for member in self._members.values())
        return [(member, groups) for member, groups in silent if groups]

    def member(self, key: Hashable) -> Member | None:
        """The member with this key."""
        return self._members.get(key)

    def members(self, role: Role, group: str) -> list[Member]:
        """The members of a group."""
        return list(self._groups.get((role, group), {}).values())

    def groups(self, role: Role) -> list[str]:
        """The groups of this role that have members, sorted."""
        return sorted(group for kind, group in self._groups if kind is role)

    def consumer_ids(self, group: str) -> set[str]:
        """Client ids of a consumer group, each once."""
        return {member.client_id for member in self.members(Role.CONSUMER, group)}

    def find(self, client_id: str, role: Role | None = None, group: str | None = None) -> Member | None:
        """A local member with this client id, in this group where one is given; the newest heartbeat wins."""
        pool = self._members.values() if role is None or group is None else self.members(role, group)
        found = [member for member in pool if member.client_id == client_id and member.channel is not None]
        return max(found, key=lambda member: member.last_heartbeat_at, default=None)

    def local(self) -> list[Member]:
        """The members on channels of ours."""
        return [member for member in self._members.values() if member.channel is not None]

    def __len__(self) -> int:
        return len(self._members)

    def _put(self, role: Role, group: str, member: Member) -> None:
        members = self._groups[role, group]
        if member.key not in members:
            members[member.key] = member
            self._tell(MembershipEvent(role, group, member))

    def _drop(self, role: Role, group: str, member: Member, cause: LeaveCause) -> None:
        members = self._groups.get((role, group))
        if members is not None:
            members.pop(member.key, None)
            if not members:
                del self._groups[role, group]
        self._tell(MembershipEvent(role, group, member, cause))

    def _tell(self, movement: MembershipEvent) -> None:
        for listener in self.listeners:
            listener(movement)


def _topics(consumer: ConsumerData) -> list[tuple[str, str]]:
    subscriptions = consumer.data.get("subscriptionDataSet") or ()
    return sorted((str(item.get("topic")), str(item.get("subString"))) for item in subscriptions)

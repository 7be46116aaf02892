"""The client registry: members of producer and consumer groups. Sans-io.

The time is an argument; changes are returned as `ConsumerGroupChange` values, which the caller reports. Members
behind other proxies (heartbeat sync) are in the same registry.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remoting.tasks import isolated

if TYPE_CHECKING:
    from proxy.core.channel import Channel

# Every Java client is in this producer group, for messages that the client library itself sends.
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
# Groups of the members that are searched at once for those without heartbeats: as many as one client may have.
_PORTION_GROUPS = 1000


class Role(StrEnum):
    """The role of a client in a group."""

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
    """ConsumerData of a heartbeat as it was sent: consume type, message model and subscriptions of one group."""

    data: dict[str, Any]

    @property
    def broadcasting(self) -> bool:
        return self.data.get("messageModel") == "BROADCASTING"

    def subscribes(self, topic: str) -> bool:
        return any(item.get("topic") == topic for item in self.data.get("subscriptionDataSet") or ())


@dataclass(frozen=True, slots=True)
class ConsumerGroupChange:
    """A member joined a consumer group or changed its subscription (joined is true), or left the group."""

    group: str
    member: "Member"
    joined: bool
    consumer_data: ConsumerData


class LeaveCause(StrEnum):
    """The cause of a member's leaving a group."""

    UNREGISTERED = "unregistered"
    CLOSED = "closed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """A member joined a producer or consumer group (cause None) or left it."""

    role: Role
    group: str
    member: "Member"
    cause: LeaveCause | None = None


@dataclass(slots=True)
class Member:
    """One client: on a local channel, or behind another proxy if channel is None.

    key: unique; the channel itself for local members. producers, consumers: by group, the time in seconds of the last
    heartbeat that named the group.
    """

    key: Hashable
    client_id: str
    channel: "Channel | None" = None
    address: str = ""
    language: str = ""
    version: int = 0
    producers: dict[str, float] = field(default_factory=dict)
    consumers: dict[str, float] = field(default_factory=dict)
    consumer_data: dict[str, ConsumerData] = field(default_factory=dict)

    @property
    def representative(self) -> bool:
        """Whether it is no client, but a channel of this proxy that represents gRPC producers to brokers."""
        return self.channel is not None and self.channel.representative

    @property
    def groups(self) -> Groups:
        return Groups(frozenset(self.producers), frozenset(self.consumers))

    @property
    def last_heartbeat_at(self) -> float:
        """The time of the last heartbeat in seconds."""
        return max((*self.producers.values(), *self.consumers.values()), default=0.0)

    def silent_groups(self, before: float) -> Groups:
        """Return the groups whose last heartbeat is older than `before`, in seconds."""
        return Groups(
            frozenset(group for group, heartbeat_at in self.producers.items() if heartbeat_at < before),
            frozenset(group for group, heartbeat_at in self.consumers.items() if heartbeat_at < before),
        )


class ClientRegistry:
    """Members by channel and by group. A client with two connections is two members with one client id.

    `listeners` are notified of each member that joins or leaves a group, not of changed subscriptions.
    """

    def __init__(self, expiry: float = 90.0) -> None:
        # Shorter than the brokers' 120 s: a broker closes the connection of an expired client, and several clients
        # may share our connection.
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
        """Record a heartbeat and return the changes of consumer groups.

        The member joins the heartbeat's groups and stays in its other groups until it is unregistered. An existing
        member with the key of `member` is kept. `now` is in seconds.
        """
        key, client_id = member.key, member.client_id
        member = self._members.setdefault(key, member)
        if member.client_id != client_id:
            # The same client has restarted its session with another id.
            member.client_id = client_id
        for group in producers:
            member.producers[group] = now
            self._add(Role.PRODUCER, group, member)
        changes = []
        for group, consumer in consumers.items():
            former = member.consumer_data.get(group)
            if former is None or _topics(former) != _topics(consumer):
                changes.append(ConsumerGroupChange(group, member, True, consumer))
            member.consumer_data[group] = consumer
            member.consumers[group] = now
            self._add(Role.CONSUMER, group, member)
        return changes

    def unregister(
        self, key: Hashable, groups: Groups, cause: LeaveCause = LeaveCause.UNREGISTERED
    ) -> list[ConsumerGroupChange]:
        """Remove a member from groups and return the changes of consumer groups; other groups are ignored."""
        member = self._members.get(key)
        if member is None:
            return []
        for group in groups.producers & member.producers.keys():
            del member.producers[group]
            self._remove(Role.PRODUCER, group, member, cause)
        changes = []
        for group in sorted(groups.consumers & member.consumers.keys()):
            del member.consumers[group]
            consumer = member.consumer_data.pop(group)
            self._remove(Role.CONSUMER, group, member, cause)
            changes.append(ConsumerGroupChange(group, member, False, consumer))
        if not member.producers and not member.consumers:
            del self._members[key]
        return changes

    def portions(self) -> Iterator[list[Member]]:
        """Yield all present members in lists with about a thousand groups: clients may have thousands of groups each.

        Members may join and leave meanwhile.
        """
        portion: list[Member] = []
        count = 0
        for member in list(self._members.values()):
            portion.append(member)
            count += len(member.producers) + len(member.consumers)
            if count >= _PORTION_GROUPS:
                yield portion
                portion, count = [], 0
        if portion:
            yield portion

    def expired(self, now: float, members: Iterable[Member] | None = None) -> list[tuple[Member, Groups]]:
        """Return each of these members (None: all) with its groups without a heartbeat for the expiry.

        The caller unregisters them. Those that have left are not among them.
        """
        pool = self._members.values() if members is None else members
        present = [member for member in pool if self._members.get(member.key) is member]
        silent = ((member, member.silent_groups(now - self._expiry)) for member in present)
        return [(member, groups) for member, groups in silent if groups]

    def member(self, key: Hashable) -> Member | None:
        """Return the member with this key."""
        return self._members.get(key)

    def members(self, role: Role, group: str) -> list[Member]:
        """Return the members of a group."""
        return list(self._groups.get((role, group), {}).values())

    def groups(self, role: Role) -> list[str]:
        """Return the groups of this role that have members, sorted."""
        return sorted(group for kind, group in self._groups if kind is role)

    def consumer_ids(self, group: str) -> set[str]:
        """Return the client ids of a consumer group."""
        return {member.client_id for member in self.members(Role.CONSUMER, group)}

    def find(self, client_id: str, role: Role | None = None, group: str | None = None) -> Member | None:
        """Return the local member with this client id (in this group, if given) and the newest heartbeat."""
        pool = self._members.values() if role is None or group is None else self.members(role, group)
        found = [member for member in pool if member.client_id == client_id and member.channel is not None]
        return max(found, key=lambda member: member.last_heartbeat_at, default=None)

    def local(self) -> list[Member]:
        """Return the members on local channels."""
        return [member for member in self._members.values() if member.channel is not None]

    def __len__(self) -> int:
        return len(self._members)

    def _add(self, role: Role, group: str, member: Member) -> None:
        members = self._groups[role, group]
        if member.key not in members:
            members[member.key] = member
            self._notify(MembershipEvent(role, group, member))

    def _remove(self, role: Role, group: str, member: Member, cause: LeaveCause) -> None:
        members = self._groups.get((role, group))
        if members is not None:
            members.pop(member.key, None)
            if not members:
                del self._groups[role, group]
        self._notify(MembershipEvent(role, group, member, cause))

    def _notify(self, event: MembershipEvent) -> None:
        for listener in self.listeners:
            isolated(listener, event)


def _topics(consumer: ConsumerData) -> list[tuple[str, str]]:
    subscriptions = consumer.data.get("subscriptionDataSet") or ()
    return sorted((str(item.get("topic")), str(item.get("subString"))) for item in subscriptions)

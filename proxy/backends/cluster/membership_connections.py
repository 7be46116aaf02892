"""Assignment of clients to membership connections, which register them at a broker. Sans-io.

A broker keeps a group's members by connection: two members of one group need two connections, while one connection can
register any number of clients that share no group. So each membership connection has at most one member of each group,
and a broker sees as many connections as its largest group has members here. A broker's request about a group goes to
the connection's only member of that group.
"""

from dataclasses import dataclass, field

from proxy.core.channel import Channel
from proxy.core.client_registry import INNER_PRODUCER, Groups, Role

# The place of a client in a group.
Slot = tuple[Role, str]


@dataclass(slots=True)
class MembershipConnection:
    """The slots of one connection to each broker address, by slot and by channel.

    It may have thousands of channels: those of a client id are found without a search.
    """

    number: int
    slots: dict[Slot, Channel] = field(default_factory=dict)
    slots_by_channel: dict[Channel, set[Slot]] = field(default_factory=dict)
    _channels: dict[str, dict[Channel, None]] = field(default_factory=dict)
    _client_ids: dict[Channel, str] = field(default_factory=dict)

    def channel_of(self, client_id: str) -> Channel | None:
        """Return the first channel with this client id."""
        return next(iter(self._channels.get(client_id, ())), None)

    def has_room(self, channel: Channel, slots: set[Slot]) -> bool:
        """Return whether none of these slots belongs to another client."""
        return all(self.slots.get(slot, channel) is channel for slot in slots)

    def take(self, channel: Channel, slots: set[Slot]) -> None:
        """Give slots to a client."""
        self.slots.update(dict.fromkeys(slots, channel))
        self.slots_by_channel.setdefault(channel, set()).update(slots)
        self._name(channel, channel.session.client_id)

    def free(self, channel: Channel, slots: set[Slot]) -> None:
        """Free slots of a client."""
        taken = self.slots_by_channel.get(channel, set())
        for slot in taken & slots:
            del self.slots[slot]
        taken -= slots
        if not taken:
            self.slots_by_channel.pop(channel, None)
            self._name(channel, None)

    def _name(self, channel: Channel, client_id: str | None) -> None:
        """Record the client id of a channel, which may change; None: it has left."""
        former = self._client_ids.get(channel)
        if former == client_id:
            return
        if former is not None:
            del self._channels[former][channel]
            if not self._channels[former]:
                del self._channels[former]
            del self._client_ids[channel]
        if client_id is not None:
            self._channels.setdefault(client_id, {})[channel] = None
            self._client_ids[channel] = client_id


class MembershipConnections:
    """Slots for clients, on as few connections as possible."""

    def __init__(self) -> None:
        self._connections: list[MembershipConnection] = []
        self._by_channel: dict[Channel, MembershipConnection] = {}
        # The connections with a member in each slot, as bits at their numbers: a group may have thousands of members.
        self._taken: dict[Slot, int] = {}

    def connection_of(self, channel: Channel) -> MembershipConnection | None:
        """Return the client's connection."""
        return self._by_channel.get(channel)

    def assign(self, channel: Channel, groups: Groups) -> tuple[MembershipConnection, MembershipConnection | None]:
        """Give a client slots for these groups; return its connection and, if it had to move, the former one.

        A client has a single connection. It moves when it joins a group that has another member on its connection.
        """
        slots = _slots(groups)
        current = self._by_channel.get(channel)
        if current is not None and not self.needs_another(channel, groups):
            self._take(current, channel, slots)
            return current, None
        connection = self.find(channel, groups)
        self._take(connection, channel, slots | self.slots_of(channel))
        self._by_channel[channel] = connection
        return connection, current

    def needs_another(self, channel: Channel, groups: Groups) -> bool:
        """Return whether the client has no connection, or one on which another client is in one of these groups."""
        current = self._by_channel.get(channel)
        return current is None or not current.has_room(channel, _slots(groups))

    def find(self, channel: Channel, groups: Groups) -> MembershipConnection:
        """Return the first connection with free slots for these groups and those the client is in, or a new one."""
        slots = _slots(groups) | self.slots_of(channel)
        taken = 0
        for slot in slots:
            taken |= self._taken.get(slot, 0)
        while True:
            # The lowest bit that is not set.
            number = (~taken & (taken + 1)).bit_length() - 1
            if number == len(self._connections):
                self._connections.append(MembershipConnection(number))
            connection = self._connections[number]
            # Not one that the client is still leaving: its slots there are about to be freed.
            if channel not in connection.slots_by_channel:
                return connection
            taken |= 1 << number

    def _take(self, connection: MembershipConnection, channel: Channel, slots: set[Slot]) -> None:
        connection.take(channel, slots)
        for slot in slots:
            self._taken[slot] = self._taken.get(slot, 0) | 1 << connection.number

    def slots_of(self, channel: Channel) -> set[Slot]:
        """Return the client's slots on its connection."""
        connection = self._by_channel.get(channel)
        return set() if connection is None else set(connection.slots_by_channel.get(channel, ()))

    def release(self, connection: MembershipConnection, channel: Channel, groups: Groups | None = None) -> bool:
        """Free a client's slots for these groups (None: all); return whether the connection is empty."""
        taken = connection.slots_by_channel.get(channel, set())
        freed = set(taken) if groups is None else taken & _slots(groups)
        connection.free(channel, freed)
        for slot in freed:
            self._taken[slot] ^= 1 << connection.number
            if not self._taken[slot]:
                del self._taken[slot]
        if self._by_channel.get(channel) is connection and channel not in connection.slots_by_channel:
            del self._by_channel[channel]
        return not connection.slots_by_channel

    def __len__(self) -> int:
        return sum(bool(connection.slots) for connection in self._connections)


def _slots(groups: Groups) -> set[Slot]:
    return {(Role.CONSUMER, group) for group in groups.consumers} | {
        # Every Java client is in INNER_PRODUCER, and no broker sends requests about it: no slot is needed.
        (Role.PRODUCER, group)
        for group in groups.producers
        if group != INNER_PRODUCER
    }

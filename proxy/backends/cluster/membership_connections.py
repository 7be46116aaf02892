"""Lanes: which of our connections to a broker stands for which client. Sans-io.

A broker keeps a group's members by connection: two members of one group need two connections,
while one connection can stand for any number of clients that share no group. So the n-th lane
carries at most one member of each group, and a broker sees as many connections as its largest
group has members here. What a broker pushes over a lane about a group is for the lane's one
member of that group.
"""

from dataclasses import dataclass, field

from proxy.core.channel import Channel
from proxy.core.client_registry import INNER_PRODUCER, Groups, Role

Seat = tuple[Role, str]


@dataclass(slots=True)
class MembershipConnection:
    """One connection per broker address; `seats` are its members by role and group, `held` the reverse."""

    number: int
    seats: dict[Seat, Channel] = field(default_factory=dict)
    held: dict[Channel, set[Seat]] = field(default_factory=dict)

    def fits(self, channel: Channel, seats: set[Seat]) -> bool:
        """True where none of these seats is another's."""
        return all(self.seats.get(seat, channel) is channel for seat in seats)

    def take(self, channel: Channel, seats: set[Seat]) -> None:
        """Seat a client here."""
        self.seats.update(dict.fromkeys(seats, channel))
        self.held.setdefault(channel, set()).update(seats)

    def give(self, channel: Channel, seats: set[Seat]) -> None:
        """Free seats of a client."""
        held = self.held.get(channel, set())
        for seat in held & seats:
            del self.seats[seat]
        held -= seats
        if not held:
            self.held.pop(channel, None)


class MembershipConnections:
    """Seats for clients, on as few lanes as possible."""

    def __init__(self) -> None:
        self._lanes: list[MembershipConnection] = []
        self._of: dict[Channel, MembershipConnection] = {}

    def lane(self, channel: Channel) -> MembershipConnection | None:
        """The client's lane."""
        return self._of.get(channel)

    def seat(self, channel: Channel, groups: Groups) -> tuple[MembershipConnection, MembershipConnection | None]:
        """Seat a client for these groups besides those it has; (its lane, the lane it had to leave or None).

        A client stays on one lane. It moves when it joins a group of which somebody else is on it.
        """
        wanted = _seats(groups)
        present = self._of.get(channel)
        if present is not None:
            if present.fits(channel, wanted):
                present.take(channel, wanted)
                return present, None
            wanted |= self.seats(channel)
        lane = self._vacant(channel, wanted)
        lane.take(channel, wanted)
        self._of[channel] = lane
        return lane, present

    def _vacant(self, channel: Channel, wanted: set[Seat]) -> MembershipConnection:
        """The first lane with these seats free."""
        for lane in self._lanes:
            # Not back to a lane that it is still leaving: its seats there are about to be freed.
            if channel not in lane.held and lane.fits(channel, wanted):
                return lane
        lane = MembershipConnection(len(self._lanes))
        self._lanes.append(lane)
        return lane

    def seats(self, channel: Channel) -> set[Seat]:
        """The seats that a client has on its lane."""
        lane = self._of.get(channel)
        return set() if lane is None else set(lane.held.get(channel, ()))

    def free(self, lane: MembershipConnection, channel: Channel, groups: Groups | None = None) -> bool:
        """Give seats of a client (None: all) to others; true when the lane is empty now."""
        lane.give(channel, lane.held.get(channel, set()) if groups is None else _seats(groups))
        if self._of.get(channel) is lane and channel not in lane.held:
            del self._of[channel]
        return not lane.held

    def __len__(self) -> int:
        return sum(bool(lane.seats) for lane in self._lanes)


def _seats(groups: Groups) -> set[Seat]:
    return {(Role.CONSUMER, group) for group in groups.consumers} | {
        # Every Java client is in it and no broker asks it anything: it must not cost each client a lane.
        (Role.PRODUCER, group)
        for group in groups.producers
        if group != INNER_PRODUCER
    }

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.backends.cluster.membership_connections import MembershipConnections
from proxy.core.client_registry import INNER_PRODUCER, Groups, Role
from tests.proxy.fakes import FakeChannel


def consumers(*groups: str) -> Groups:
    return Groups(consumers=frozenset(groups))


def test_clients_without_a_common_group_share_a_connection() -> None:
    lanes = MembershipConnections()
    a, b = FakeChannel(), FakeChannel()
    assert lanes.assign(a, consumers("g")) == (lanes.connection_of(a), None)
    assert lanes.assign(b, Groups(frozenset("g"), frozenset("h"))) == (lanes.connection_of(a), None)
    assert len(lanes) == 1


def test_members_of_one_group_have_separate_connections() -> None:
    lanes = MembershipConnections()
    clients = [FakeChannel() for _ in range(5)]
    numbers = [lanes.assign(client, consumers("g"))[0].number for client in clients]
    assert numbers == [0, 1, 2, 3, 4]


def test_inner_producer_group_needs_no_slot() -> None:
    lanes = MembershipConnections()
    for _ in range(5):
        lane, _ = lanes.assign(FakeChannel(), Groups(frozenset([INNER_PRODUCER]), frozenset()))
        assert lane.number == 0
    assert len(lanes) == 0


def test_moving_client_keeps_its_former_slots_until_they_are_released() -> None:
    lanes = MembershipConnections()
    first, second = FakeChannel(), FakeChannel()
    lanes.assign(first, consumers("g"))
    home, _ = lanes.assign(second, consumers("h"))
    lane, left = lanes.assign(second, consumers("g"))
    assert left is home
    assert lanes.connection_of(second) is lane
    assert lane is not home
    assert lanes.slots_of(second) == {(Role.CONSUMER, "g"), (Role.CONSUMER, "h")}
    assert lanes.assign(FakeChannel(), consumers("h"))[0].number == 2, "the seat it leaves is not free yet"
    assert not lanes.release(home, second), "first is still there"
    assert lanes.assign(FakeChannel(), consumers("h"))[0] is home
    assert lanes.connection_of(second) is lane


def test_moving_client_does_not_return_to_the_connection_it_leaves() -> None:
    lanes = MembershipConnections()
    first, other, mover = FakeChannel(), FakeChannel(), FakeChannel()
    lanes.assign(first, consumers("g"))
    lanes.assign(other, consumers("i"))
    home, _ = lanes.assign(mover, consumers("h"))
    lane, _ = lanes.assign(mover, consumers("g"))
    lanes.assign(FakeChannel(), consumers("j", "i"))
    lanes.release(home, first)
    lanes.release(home, other)
    again, _ = lanes.assign(mover, consumers("j"))
    assert again is not home
    lanes.release(home, mover)
    assert lanes.slots_of(mover) == {(Role.CONSUMER, group) for group in "ghj"}
    assert lane is not home


def test_released_slots_are_reused() -> None:
    lanes = MembershipConnections()
    first, second = FakeChannel(), FakeChannel()
    lane, _ = lanes.assign(first, consumers("g", "h"))
    assert not lanes.release(lane, first, consumers("g"))
    assert lanes.connection_of(first) is lane
    assert lanes.assign(second, consumers("g"))[0] is lane
    assert not lanes.release(lane, first)
    assert lanes.connection_of(first) is None
    assert lanes.release(lane, second, consumers("g"))
    assert len(lanes) == 0


Client = st.sampled_from(range(5))
Names = st.frozensets(st.sampled_from("abc"), max_size=2)
AllGroups = st.builds(Groups, st.frozensets(st.sampled_from(["p", INNER_PRODUCER]), max_size=2), Names)


class LanesKeepMembersApart(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lanes = MembershipConnections()
        self.clients = [FakeChannel() for _ in range(5)]
        self.model: dict[int, set[tuple[Role, str]]] = {number: set() for number in range(5)}

    @rule(number=Client, groups=AllGroups)
    def seat(self, number: int, groups: Groups) -> None:
        client = self.clients[number]
        before = self.lanes.connection_of(client)
        lane, left = self.lanes.assign(client, groups)
        assert left is (before if before is not lane else None)
        if left is not None:
            self.lanes.release(left, client)
        self.model[number] |= {(Role.CONSUMER, group) for group in groups.consumers}
        self.model[number] |= {(Role.PRODUCER, group) for group in groups.producers - {INNER_PRODUCER}}

    @rule(number=Client, groups=st.none() | AllGroups)
    def free(self, number: int, groups: Groups | None) -> None:
        client = self.clients[number]
        lane = self.lanes.connection_of(client)
        if lane is None:
            return
        empty = self.lanes.release(lane, client, groups)
        gone = (
            set(self.model[number])
            if groups is None
            else {(Role.CONSUMER, group) for group in groups.consumers}
            | {(Role.PRODUCER, group) for group in groups.producers}
        )
        self.model[number] -= gone
        assert empty == (not lane.slots_by_channel)

    @invariant()
    def everybody_has_its_seats_on_its_own_lane_and_nobody_elses(self) -> None:
        for number, client in enumerate(self.clients):
            assert self.lanes.slots_of(client) == self.model[number]
            lane = self.lanes.connection_of(client)
            if lane is not None:
                assert {seat for seat, holder in lane.slots.items() if holder is client} == self.model[number]

    @invariant()
    def a_lane_has_one_member_of_each_group(self) -> None:
        for seat in set().union(*self.model.values()):
            holders = [number for number, seats in self.model.items() if seat in seats]
            assert len({id(self.lanes.connection_of(self.clients[number])) for number in holders}) == len(holders)

    @invariant()
    def there_are_no_fewer_lanes_than_the_largest_group_has_members(self) -> None:
        sizes = Counter(seat for seats in self.model.values() for seat in seats)
        assert len(self.lanes) >= max(sizes.values(), default=0)


TestLanesKeepMembersApart = LanesKeepMembersApart.TestCase
TestLanesKeepMembersApart.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@settings(max_examples=60, deadline=None)
@given(sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1))
def test_number_of_connections_is_the_size_of_the_largest_group(sizes: dict[str, int]) -> None:
    lanes = MembershipConnections()
    for group, size in sizes.items():
        for _ in range(size):
            lanes.assign(FakeChannel(), Groups(frozenset([INNER_PRODUCER]), frozenset(group)))
    assert len(lanes) == max(sizes.values())

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
    connections = MembershipConnections()
    a, b = FakeChannel(), FakeChannel()
    assert connections.assign(a, consumers("g")) == (connections.connection_of(a), None)
    assert connections.assign(b, Groups(frozenset("g"), frozenset("h"))) == (connections.connection_of(a), None)
    assert len(connections) == 1


def test_members_of_one_group_have_separate_connections() -> None:
    connections = MembershipConnections()
    clients = [FakeChannel() for _ in range(5)]
    numbers = [connections.assign(client, consumers("g"))[0].number for client in clients]
    assert numbers == [0, 1, 2, 3, 4]


def test_inner_producer_group_needs_no_slot() -> None:
    connections = MembershipConnections()
    for _ in range(5):
        connection, _ = connections.assign(FakeChannel(), Groups(frozenset([INNER_PRODUCER]), frozenset()))
        assert connection.number == 0
    assert len(connections) == 0


def test_channels_are_found_by_their_client_ids() -> None:
    connections = MembershipConnections()
    first, second = FakeChannel(), FakeChannel()
    for client in (first, second):
        client.session.client_id = "c"
    connection, _ = connections.assign(first, consumers("g"))
    connections.assign(second, consumers("h"))
    assert connection.channel_of("c") is first
    first.session.client_id = "restarted"
    connections.assign(first, consumers("g"))
    assert (connection.channel_of("restarted"), connection.channel_of("c")) == (first, second)
    connections.release(connection, second, consumers("h"))
    assert (connection.channel_of("restarted"), connection.channel_of("c")) == (first, None)
    connections.release(connection, first)
    assert connection.channel_of("restarted") is None


def test_moving_client_keeps_its_former_slots_until_they_are_released() -> None:
    connections = MembershipConnections()
    first, second = FakeChannel(), FakeChannel()
    connections.assign(first, consumers("g"))
    home, _ = connections.assign(second, consumers("h"))
    connection, left = connections.assign(second, consumers("g"))
    assert left is home
    assert connections.connection_of(second) is connection
    assert connection is not home
    assert connections.slots_of(second) == {(Role.CONSUMER, "g"), (Role.CONSUMER, "h")}
    assert connections.assign(FakeChannel(), consumers("h"))[0].number == 2, "the slot it leaves is not free yet"
    assert not connections.release(home, second), "first is still there"
    assert connections.assign(FakeChannel(), consumers("h"))[0] is home
    assert connections.connection_of(second) is connection


def test_moving_client_does_not_return_to_the_connection_it_leaves() -> None:
    connections = MembershipConnections()
    first, other, mover = FakeChannel(), FakeChannel(), FakeChannel()
    connections.assign(first, consumers("g"))
    connections.assign(other, consumers("i"))
    home, _ = connections.assign(mover, consumers("h"))
    connection, _ = connections.assign(mover, consumers("g"))
    connections.assign(FakeChannel(), consumers("j", "i"))
    connections.release(home, first)
    connections.release(home, other)
    again, _ = connections.assign(mover, consumers("j"))
    assert again is not home
    connections.release(home, mover)
    assert connections.slots_of(mover) == {(Role.CONSUMER, group) for group in "ghj"}
    assert connection is not home


def test_released_slots_are_reused() -> None:
    connections = MembershipConnections()
    first, second = FakeChannel(), FakeChannel()
    connection, _ = connections.assign(first, consumers("g", "h"))
    assert not connections.release(connection, first, consumers("g"))
    assert connections.connection_of(first) is connection
    assert connections.assign(second, consumers("g"))[0] is connection
    assert not connections.release(connection, first)
    assert connections.connection_of(first) is None
    assert connections.release(connection, second, consumers("g"))
    assert len(connections) == 0


Client = st.sampled_from(range(5))
Names = st.frozensets(st.sampled_from("abc"), max_size=2)
AllGroups = st.builds(Groups, st.frozensets(st.sampled_from(["p", INNER_PRODUCER]), max_size=2), Names)


class LanesKeepMembersApart(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.connections = MembershipConnections()
        self.clients = [FakeChannel() for _ in range(5)]
        self.model: dict[int, set[tuple[Role, str]]] = {number: set() for number in range(5)}

    @rule(number=Client, groups=AllGroups)
    def slot(self, number: int, groups: Groups) -> None:
        client = self.clients[number]
        before = self.connections.connection_of(client)
        connection, left = self.connections.assign(client, groups)
        assert left is (before if before is not connection else None)
        if left is not None:
            self.connections.release(left, client)
        self.model[number] |= {(Role.CONSUMER, group) for group in groups.consumers}
        self.model[number] |= {(Role.PRODUCER, group) for group in groups.producers - {INNER_PRODUCER}}

    @rule(number=Client, groups=st.none() | AllGroups)
    def free(self, number: int, groups: Groups | None) -> None:
        client = self.clients[number]
        connection = self.connections.connection_of(client)
        if connection is None:
            return
        empty = self.connections.release(connection, client, groups)
        gone = (
            set(self.model[number])
            if groups is None
            else {(Role.CONSUMER, group) for group in groups.consumers}
            | {(Role.PRODUCER, group) for group in groups.producers}
        )
        self.model[number] -= gone
        assert empty == (not connection.slots_by_channel)

    @invariant()
    def each_client_has_its_slots_on_one_connection_only(self) -> None:
        for number, client in enumerate(self.clients):
            assert self.connections.slots_of(client) == self.model[number]
            connection = self.connections.connection_of(client)
            if connection is not None:
                assert {slot for slot, holder in connection.slots.items() if holder is client} == self.model[number]

    @invariant()
    def a_connection_has_one_member_of_each_group(self) -> None:
        for slot in set().union(*self.model.values()):
            holders = [number for number, slots in self.model.items() if slot in slots]
            assert len({id(self.connections.connection_of(self.clients[number])) for number in holders}) == len(holders)

    @invariant()
    def there_are_at_least_as_many_connections_as_members_of_the_largest_group(self) -> None:
        sizes = Counter(slot for slots in self.model.values() for slot in slots)
        assert len(self.connections) >= max(sizes.values(), default=0)


TestLanesKeepMembersApart = LanesKeepMembersApart.TestCase
TestLanesKeepMembersApart.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@settings(max_examples=60, deadline=None)
@given(sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1))
def test_number_of_connections_is_the_size_of_the_largest_group(sizes: dict[str, int]) -> None:
    connections = MembershipConnections()
    for group, size in sizes.items():
        for _ in range(size):
            connections.assign(FakeChannel(), Groups(frozenset([INNER_PRODUCER]), frozenset(group)))
    assert len(connections) == max(sizes.values())

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.core.client_registry import ClientRegistry, ConsumerData, ConsumerGroupChange, Groups, Member, Role
from tests.proxy.fakes import FakeChannel

EXPIRY = 90.0


def consumer(*topics: str, model: str = "CLUSTERING", expression: str = "*") -> ConsumerData:
    subscriptions = [{"topic": topic, "subString": expression} for topic in topics]
    return ConsumerData({"messageModel": model, "subscriptionDataSet": subscriptions})


def member(client_id: str = "c1") -> Member:
    channel = FakeChannel()
    return Member(channel, client_id, channel)


def remote(client_id: str) -> Member:
    return Member(("other proxy", client_id), client_id)


def told(changes: list[ConsumerGroupChange]) -> list[tuple[str, str, bool]]:
    return [(change.group, change.member.client_id, change.joined) for change in changes]


@pytest.fixture
def registry() -> ClientRegistry:
    return ClientRegistry(EXPIRY)


def test_member_joins_stays_and_leaves(registry: ClientRegistry) -> None:
    client = member()
    assert told(registry.heartbeat(client, ["p"], {"g": consumer("t")}, 1)) == [("g", "c1", True)]
    assert told(registry.heartbeat(client, ["p"], {"g": consumer("t")}, 31)) == []
    assert registry.consumer_ids("g") == {"c1"}
    assert registry.members(Role.PRODUCER, "p") == [client]
    assert told(registry.unregister(client.key, client.groups)) == [("g", "c1", False)]
    assert told(registry.unregister(client.key, Groups(consumers=frozenset("g")))) == []
    assert (registry.consumer_ids("g"), registry.members(Role.PRODUCER, "p"), len(registry)) == (set(), [], 0)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (consumer("t"), consumer("t"), False),
        (consumer("t", "u"), consumer("u", "t"), False),
        (consumer("t"), consumer("t", "u"), True),
        (consumer("t", "u"), consumer("t"), True),
        (consumer("t"), consumer("t", expression="a || b"), True),
    ],
)
def test_changed_subscription_is_a_change(
    registry: ClientRegistry, before: ConsumerData, after: ConsumerData, changed: bool
) -> None:
    client = member()
    registry.heartbeat(client, [], {"g": before}, 1)
    assert bool(registry.heartbeat(client, [], {"g": after}, 2)) == changed
    assert registry.heartbeat(client, [], {"g": after}, 3) == []


def test_change_contains_the_consumer_data(registry: ClientRegistry) -> None:
    changes = registry.heartbeat(member(), [], {"b": consumer("t", model="BROADCASTING"), "c": consumer("t")}, 1)
    assert {change.group: change.consumer_data.broadcasting for change in changes} == {"b": True, "c": False}


def test_groups_missing_from_a_heartbeat_stay_until_they_expire(registry: ClientRegistry) -> None:
    client = member()
    registry.heartbeat(client, ["p"], {"g": consumer("t"), "h": consumer("t")}, 0)
    registry.heartbeat(client, [], {"h": consumer("t")}, 60)
    assert registry.consumer_ids("g") == {"c1"}
    assert registry.expired(EXPIRY) == []
    assert registry.expired(EXPIRY + 1) == [(client, Groups(frozenset("p"), frozenset("g")))]
    assert told(registry.unregister(client.key, Groups(frozenset("p"), frozenset("g")))) == [("g", "c1", False)]
    assert registry.expired(EXPIRY + 1) == []
    assert registry.member(client.key) is client


def test_client_with_two_connections_is_one_consumer_id(registry: ClientRegistry) -> None:
    old, new = member(), member()
    registry.heartbeat(old, [], {"g": consumer("t")}, 1)
    registry.heartbeat(new, [], {"g": consumer("t")}, 2)
    assert registry.consumer_ids("g") == {"c1"}
    assert registry.members(Role.CONSUMER, "g") == [old, new]
    registry.unregister(old.key, old.groups)
    assert registry.consumer_ids("g") == {"c1"}


@pytest.mark.parametrize(("role", "group"), [(None, None), (Role.CONSUMER, "g"), (Role.PRODUCER, "p")])
def test_find_returns_the_member_with_the_newest_heartbeat(
    registry: ClientRegistry, role: Role | None, group: str | None
) -> None:
    old, new, other = member(), member(), member("c2")
    for now, client in enumerate((new, old, other, new)):
        registry.heartbeat(client, ["p"], {"g": consumer("t")}, now)
    assert registry.find("c1", role, group) is new
    registry.unregister(new.key, new.groups)
    assert registry.find("c1", role, group) is old
    assert registry.find("c3", role, group) is None


def test_find_is_limited_to_the_group(registry: ClientRegistry) -> None:
    registry.heartbeat(member(), ["p"], {"g": consumer("t")}, 1)
    assert registry.find("c1", Role.CONSUMER, "p") is None
    assert registry.find("c1", Role.PRODUCER, "g") is None


def test_connection_with_a_new_client_id_is_the_same_member(registry: ClientRegistry) -> None:
    client = member("old")
    registry.heartbeat(client, [], {"g": consumer("t")}, 1)
    assert registry.heartbeat(Member(client.key, "new", client.channel), [], {"g": consumer("t")}, 2) == []
    assert (registry.consumer_ids("g"), len(registry)) == ({"new"}, 1)


def test_members_behind_other_proxies_are_listed_but_not_found(registry: ClientRegistry) -> None:
    near, far = member("near"), remote("far")
    for client in (near, far):
        registry.heartbeat(client, [], {"g": consumer("t")}, 1)
    assert registry.consumer_ids("g") == {"near", "far"}
    assert registry.find("far") is None
    assert registry.local() == [near]


Owner = st.sampled_from(range(4))
Group = st.sampled_from("gh")
Topics = st.lists(st.sampled_from("tu"), max_size=2, unique=True).map(tuple)


class RegistryAgainstAPlainModel(RuleBasedStateMachine):
    """The model has one row per member and group; the reported changes must add up to the members."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.registry = ClientRegistry(EXPIRY)
        self.known = [member("c0"), member("c0"), member("c1"), remote("c1")]
        self.producers: dict[tuple[int, str], float] = {}
        self.consumers: dict[tuple[int, str], tuple[float, frozenset[str]]] = {}
        self.reported: set[tuple[int, str]] = set()
        # A client without groups counts as well.
        self.present: set[int] = set()

    def _note(self, changes: list[ConsumerGroupChange], owner: int) -> None:
        for change in changes:
            row = (owner, change.group)
            assert change.member.key == self.known[owner].key
            if change.joined:
                self.reported.add(row)
            else:
                self.reported.remove(row)

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=Owner, producers=st.sets(Group), consumers=st.dictionaries(Group, Topics))
    def heartbeat(self, owner: int, producers: set[str], consumers: dict[str, Any]) -> None:
        who = self.known[owner]
        fresh = Member(who.key, who.client_id, who.channel)
        parts = {group: consumer(*topics) for group, topics in consumers.items()}
        changes = self.registry.heartbeat(fresh, producers, parts, self.now)
        rows = {group: (self.now, frozenset(topics)) for group, topics in consumers.items()}
        news = {group for group, row in rows.items() if self.consumers.get((owner, group), row)[1] != row[1]}
        news |= {group for group in rows if (owner, group) not in self.consumers}
        assert {change.group for change in changes} == news
        assert len(changes) == len(news)
        self._note(changes, owner)
        self.present.add(owner)
        self.producers.update({(owner, group): self.now for group in producers})
        self.consumers.update({(owner, group): row for group, row in rows.items()})

    @rule(owner=Owner, producers=st.frozensets(Group), consumers=st.frozensets(Group))
    def unregister(self, owner: int, producers: frozenset[str], consumers: frozenset[str]) -> None:
        changes = self.registry.unregister(self.known[owner].key, Groups(producers, consumers))
        assert {change.group for change in changes} == {g for g in consumers if (owner, g) in self.consumers}
        self._note(changes, owner)
        for group in producers:
            self.producers.pop((owner, group), None)
        for group in consumers:
            self.consumers.pop((owner, group), None)
        if not any(who == owner for who, _ in (*self.producers, *self.consumers)):
            self.present.discard(owner)

    @rule()
    def expire(self) -> None:
        keys = [who.key for who in self.known]
        for silent, groups in self.registry.expired(self.now):
            owner = keys.index(silent.key)
            assert all(self.now - self.producers[owner, group] > EXPIRY for group in groups.producers)
            assert all(self.now - self.consumers[owner, group][0] > EXPIRY for group in groups.consumers)
            self.unregister(owner, groups.producers, groups.consumers)
        assert all(self.now - seen <= EXPIRY for seen in self.producers.values())
        assert all(self.now - seen <= EXPIRY for seen, _ in self.consumers.values())

    @invariant()
    def members_are_those_of_the_model(self) -> None:
        for group in "gh":
            owners = {owner for owner, name in self.consumers if name == group}
            assert self.registry.consumer_ids(group) == {self.known[owner].client_id for owner in owners}
            assert len(self.registry.members(Role.CONSUMER, group)) == len(owners)
            owners = {owner for owner, name in self.producers if name == group}
            assert len(self.registry.members(Role.PRODUCER, group)) == len(owners)
        assert len(self.registry) == len(self.present)

    @invariant()
    def joins_and_leaves_add_up(self) -> None:
        assert self.reported == set(self.consumers)


TestRegistryAgainstAPlainModel = RegistryAgainstAPlainModel.TestCase
TestRegistryAgainstAPlainModel.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)

"""The state of a client's membership."""

import math

from proxy.core.client_registry import Groups
from proxy.core.heartbeat import accepted_groups
from proxy.core.membership_state import MembershipState
from tests.proxy.messages import heartbeat

G, H = Groups(consumers=frozenset("g")), Groups(consumers=frozenset("h"))


def accepted() -> MembershipState:
    state = MembershipState()
    state.record(heartbeat("c1", {"g": [], "h": []}), 1.0, accepted=True)
    return state


def test_last_heartbeat_does_not_contain_a_left_group() -> None:
    state = accepted()
    sent = state.heartbeat
    changed = state.drop(G, stays=True)
    assert changed is state.heartbeat is not sent
    assert changed is not None
    assert accepted_groups(changed.body) == H
    assert (state.heartbeat_accepted, state.heartbeat_at) == (True, -math.inf)


def test_heartbeat_of_a_client_without_groups_is_no_longer_accepted() -> None:
    state = accepted()
    assert state.drop(G | H, stays=False) is None
    assert (state.heartbeat_accepted, state.without_heartbeat) == (False, False)


def test_heartbeat_that_no_broker_has_accepted_is_forgotten() -> None:
    state = MembershipState()
    state.record(heartbeat("c1", {"g": [], "h": []}), 1.0, accepted=False)
    state.joining |= G | H
    assert state.drop(G, stays=False) is None
    assert (state.without_heartbeat, state.joining) == (True, H)


def test_client_falls_back_to_the_heartbeat_that_was_accepted() -> None:
    state = accepted()
    last = state.heartbeat
    state.record(heartbeat("c1", {"i": []}), 2.0, accepted=False)
    state.joining |= Groups(consumers=frozenset("i"))
    state.fall_back(last)
    assert (state.heartbeat, state.heartbeat_accepted, state.joining) == (last, True, Groups())
    state.fall_back(None)
    assert (state.heartbeat, state.heartbeat_accepted) == (None, False)

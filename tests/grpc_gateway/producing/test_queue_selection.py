from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.producing import queue_selection
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.grpc_gateway.kit import route

# Computed with the algorithm as published; the official proxy's queues for these groups.
KNOWN = [
    ("order-1", (3, 3, 3)),
    ("order-2", (2, 2, 11)),
    ("user-10086", (2, 2, 15)),
    ("分组", (0, 0, 11)),
]


@pytest.mark.parametrize(("group", "expected"), KNOWN)
def test_known_buckets(group: str, expected: tuple[int, ...]) -> None:
    assert tuple(queue_selection.consistent_hash(group, count) for count in (4, 8, 16)) == expected


@given(st.text(max_size=64), st.integers(1, 64))
def test_a_bucket_only_changes_to_a_new_one(group: str, count: int) -> None:
    before, after = queue_selection.consistent_hash(group, count), queue_selection.consistent_hash(group, count + 1)
    assert 0 <= before < count
    assert after in (before, count)


def test_turns_visit_every_queue_alike() -> None:
    turns = queue_selection.RoundRobin()
    found = route("orders", "broker-b", "broker-a")
    visits = Counter(turns.next(found) for _ in range(80))
    assert visits == Counter({(broker, number): 10 for broker in ("broker-a", "broker-b") for number in range(4)})


def test_turns_avoid_a_broker_while_there_is_another() -> None:
    turns = queue_selection.RoundRobin()
    found = route("orders", "broker-a", "broker-b")
    assert {turns.next(found, frozenset({"broker-a"}))[0] for _ in range(16)} == {"broker-b"}
    assert turns.next(route(), frozenset({"broker-a"}))[0] == "broker-a"


@pytest.mark.parametrize("found", [route(perm=4), route(write=0)])
def test_no_queue_takes_messages(found: object) -> None:
    with pytest.raises(Refused) as refused:
        queue_selection.RoundRobin().next(found)  # type: ignore[arg-type]
    assert refused.value.code == Code.FORBIDDEN
    with pytest.raises(Refused):
        queue_selection.queue_of_message_group(found, "g")  # type: ignore[arg-type]

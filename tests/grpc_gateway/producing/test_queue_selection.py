from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.producing import queue_selection
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.grpc_gateway.messages import route

# Buckets of 4, 8 and 16 queues that the official proxy uses for these message groups.
OFFICIAL_BUCKETS = [
    ("order-1", (3, 3, 3)),
    ("order-2", (2, 2, 11)),
    ("user-10086", (2, 2, 15)),
    ("分组", (0, 0, 11)),
]


@pytest.mark.parametrize(("group", "expected"), OFFICIAL_BUCKETS)
def test_consistent_hash_matches_the_official_proxy(group: str, expected: tuple[int, ...]) -> None:
    assert tuple(queue_selection.consistent_hash(group, count) for count in (4, 8, 16)) == expected


@given(st.text(max_size=64), st.integers(1, 64))
def test_consistent_hash_moves_only_to_an_added_bucket(group: str, count: int) -> None:
    before, after = queue_selection.consistent_hash(group, count), queue_selection.consistent_hash(group, count + 1)
    assert 0 <= before < count
    assert after in (before, count)


def test_round_robin_uses_every_queue_equally() -> None:
    round_robin = queue_selection.RoundRobin()
    topic_route = route("orders", "broker-b", "broker-a")
    visits = Counter(round_robin.next(topic_route) for _ in range(80))
    assert visits == Counter({(broker, number): 10 for broker in ("broker-a", "broker-b") for number in range(4)})


def test_round_robin_avoids_a_broker_if_there_is_another() -> None:
    round_robin = queue_selection.RoundRobin()
    topic_route = route("orders", "broker-a", "broker-b")
    assert {round_robin.next(topic_route, frozenset({"broker-a"}))[0] for _ in range(16)} == {"broker-b"}
    assert round_robin.next(route(), frozenset({"broker-a"}))[0] == "broker-a"


@pytest.mark.parametrize("topic_route", [route(perm=4), route(write=0)])
def test_route_without_writable_queues_is_forbidden(topic_route: object) -> None:
    with pytest.raises(Refused) as refused:
        queue_selection.RoundRobin().next(topic_route)  # type: ignore[arg-type]
    assert refused.value.code == Code.FORBIDDEN
    with pytest.raises(Refused):
        queue_selection.queue_of_sharding_key(topic_route, "g")  # type: ignore[arg-type]


def test_route_without_a_master_is_not_available() -> None:
    topic_route = route()
    (broker,) = topic_route.data["brokerDatas"]
    broker["brokerAddrs"] = {1: "broker-a:10912"}
    for select in (queue_selection.RoundRobin().next, lambda found: queue_selection.queue_of_sharding_key(found, "g")):
        with pytest.raises(Refused, match="has a master now") as refused:
            select(topic_route)
        assert refused.value.code == Code.HA_NOT_AVAILABLE

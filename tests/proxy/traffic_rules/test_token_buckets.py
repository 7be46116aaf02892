"""Invariants of token buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.traffic_rules.token_buckets import TokenBucket, TokenBuckets

_STEPS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 50)), max_size=60)


@given(st.floats(0.1, 1000), st.floats(1, 100), _STEPS)
def test_at_most_the_rate_plus_one_burst_passes(rate: float, capacity: float, steps: list[tuple[float, float]]) -> None:
    bucket, now, passed, largest = TokenBucket(rate, capacity, 0.0), 0.0, 0.0, 0.0
    for pause, amount in steps:
        now += pause
        if bucket.wait(amount, now) == 0:
            bucket.take(amount, now)
            passed += amount
            largest = max(largest, amount)
        # An amount over the capacity passes a full bucket and is owed afterwards.
        assert passed <= capacity + rate * now + max(0.0, largest - capacity) + 1e-6 * (1 + passed)


@given(st.floats(0.1, 1000), st.floats(1, 100), st.floats(0, 500), st.floats(0.1, 200))
def test_an_amount_passes_after_its_wait(rate: float, capacity: float, owed: float, amount: float) -> None:
    bucket = TokenBucket(rate, capacity, 5.0)
    bucket.take(owed, 5.0)
    wait = bucket.wait(amount, 5.0)
    assert bucket.wait(amount, 5.0 + wait) == pytest.approx(0, abs=1e-9 * (1 + wait))


@given(st.lists(st.floats(-5, 5), max_size=20))
def test_a_clock_that_goes_back_adds_no_tokens(moves: list[float]) -> None:
    bucket = TokenBucket(1.0, 1.0, 0.0)
    bucket.take(1000, 0.0)
    now, latest = 0.0, 0.0
    for move in moves:
        now += move
        latest = max(latest, now)
        assert bucket.tokens(now) <= -999 + latest + 1e-9


def test_a_bucket_holds_at_least_one_token() -> None:
    buckets = TokenBuckets(rate=0.01, burst=1.0)
    assert buckets.get("k", 0.0).wait(1, 0.0) == 0


def test_the_fullest_buckets_are_evicted() -> None:
    buckets = TokenBuckets(rate=1.0, burst=10.0, max_buckets=10)
    for number in range(10):
        buckets.get(number, 0.0).take(number, 0.0)
    buckets.get("new", 0.0)
    assert len(buckets) <= 10
    assert buckets.get(9, 0.0).tokens(0.0) == 1.0
    # The fullest bucket was evicted and is full again.
    assert buckets.get(0, 0.0).tokens(0.0) == 10.0

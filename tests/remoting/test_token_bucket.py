"""Invariants of a token bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.token_bucket import TokenBucket

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


def test_returned_tokens_do_not_exceed_the_capacity() -> None:
    bucket = TokenBucket(1.0, 10.0, 0.0)
    bucket.take(4.0, 0.0)
    # Three tokens have been refilled until they are returned.
    assert bucket.tokens(3.0) == 9.0
    bucket.give_back(4.0)
    assert bucket.tokens(3.0) == 10.0

"""Token buckets by key."""

from proxy.traffic_rules.token_buckets import TokenBuckets


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

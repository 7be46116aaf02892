"""Token buckets by key. Sans-I/O: callers pass the time."""

from collections.abc import Hashable

from remoting.token_bucket import TokenBucket

# Buckets of one limit. Clients choose the names that are keys, so that the number has to be bounded.
_MAX_BUCKETS = 10_000


class TokenBuckets:
    """One bucket per key. At `max_buckets` keys, the fuller half of the buckets is evicted."""

    __slots__ = ("_buckets", "_capacity", "_max_buckets", "_rate")

    def __init__(self, rate: float, burst: float, max_buckets: int = _MAX_BUCKETS) -> None:
        """Use `rate` tokens per second and `burst` seconds of them as capacity."""
        self._rate = rate
        # At least one: a smaller bucket would never permit a whole message.
        self._capacity = max(1.0, rate * burst)
        self._max_buckets = max_buckets
        self._buckets: dict[Hashable, TokenBucket] = {}

    def get(self, key: Hashable, now: float) -> TokenBucket:
        """Return the key's bucket, a full one if the key is new."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._max_buckets:
                self._evict_fullest(now)
            bucket = self._buckets[key] = TokenBucket(self._rate, self._capacity, now)
        return bucket

    def _evict_fullest(self, now: float) -> None:
        # A full bucket is equivalent to a new one, so that evicting the fullest forgives least.
        keys = sorted(self._buckets, key=lambda key: self._buckets[key].tokens(now), reverse=True)
        for key in keys[: len(keys) // 2 + 1]:
            del self._buckets[key]

    def __len__(self) -> int:
        return len(self._buckets)

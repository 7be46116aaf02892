"""Token buckets: a rate with a burst. Sans-I/O: callers pass the time."""

from collections.abc import Hashable

# Buckets of one limit. Clients choose the names that are keys, so that the number has to be bounded.
_MAX_BUCKETS = 10_000


class TokenBucket:
    """A bucket of at most `capacity` tokens, refilled with `rate` tokens per second. Full at first; may be overdrawn.

    Times are seconds of any monotonic clock.
    """

    __slots__ = ("_tokens", "_updated", "capacity", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self._tokens = capacity
        self._updated = now

    def tokens(self, now: float) -> float:
        """Return the number of tokens; a negative number is owed."""
        if now > self._updated:
            tokens = self._tokens + (now - self._updated) * self.rate
            self._tokens = tokens if tokens < self.capacity else self.capacity
            self._updated = now
        return self._tokens

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` tokens may be taken.

        A full bucket permits any amount, so that amounts over the capacity pass too.
        """
        tokens = self.tokens(now)
        if tokens >= amount:
            return 0.0
        missing = min(amount, self.capacity) - tokens
        return max(0.0, missing / self.rate)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` tokens, overdrawing the bucket if necessary."""
        self._tokens = self.tokens(now) - amount

    def spend(self, amount: float, now: float) -> float:
        """Take `amount` tokens and return 0.0 if they are available, else return the seconds until they are."""
        if self.tokens(now) >= amount:
            self._tokens -= amount
            return 0.0
        wait = self.wait(amount, now)
        if not wait:
            self._tokens -= amount
        return wait

    def give_back(self, amount: float) -> None:
        """Return tokens that were taken but not used."""
        self._tokens += amount


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

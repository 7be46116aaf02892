"""Token buckets: so much per second, with a burst. Sans-io: the time comes in as an argument."""

from collections.abc import Hashable

# Buckets of one limit. Whoever makes names up must not fill the memory.
_MAX = 10_000


class TokenBucket:
    """`rate` tokens per second, at most `capacity` at once. It is full at first, and may be overdrawn.

    Times are seconds of any clock that does not go back.
    """

    __slots__ = ("_at", "_tokens", "capacity", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self._tokens = capacity
        self._at = now

    def tokens(self, now: float) -> float:
        """How many there are; negative: how many are owed."""
        if now > self._at:
            tokens = self._tokens + (now - self._at) * self.rate
            self._tokens = tokens if tokens < self.capacity else self.capacity
            self._at = now
        return self._tokens

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so many may be taken: what is more than the capacity may be taken from a full bucket."""
        tokens = self.tokens(now)
        if tokens >= amount:
            return 0.0
        missing = min(amount, self.capacity) - tokens
        return max(0.0, missing / self.rate)

    def take(self, amount: float, now: float) -> None:
        """Take so many, whether they are there or not."""
        self._tokens = self.tokens(now) - amount

    def spend(self, amount: float, now: float) -> float:
        """Take so many if they are there; else seconds until they may be."""
        if self.tokens(now) >= amount:
            self._tokens -= amount
            return 0.0
        wait = self.wait(amount, now)
        if not wait:
            self._tokens -= amount
        return wait

    def give_back(self, amount: float) -> None:
        """What was taken is not needed."""
        self._tokens += amount


class Buckets:
    """A bucket for each key; those that are full, or fullest, make room for others."""

    __slots__ = ("_buckets", "_capacity", "_most", "_rate")

    def __init__(self, rate: float, burst: float, most: int = _MAX) -> None:
        """burst: in seconds of the rate."""
        self._rate = rate
        # At least one: less would never be enough for a whole message.
        self._capacity = max(1.0, rate * burst)
        self._most = most
        self._buckets: dict[Hashable, TokenBucket] = {}

    def get(self, key: Hashable, now: float) -> TokenBucket:
        """The key's bucket."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._make_room(now)
            bucket = self._buckets[key] = TokenBucket(self._rate, self._capacity, now)
        return bucket

    def _make_room(self, now: float) -> None:
        """Drop the fuller half: a full bucket is as good as a new one."""
        fullest = sorted(self._buckets, key=lambda key: self._buckets[key].tokens(now), reverse=True)
        for key in fullest[: len(fullest) // 2 + 1]:
            del self._buckets[key]

    def __len__(self) -> int:
        return len(self._buckets)

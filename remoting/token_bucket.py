"""A token bucket: a rate with a burst. Sans-I/O: callers pass the time."""


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
        self._tokens = min(self._tokens + amount, self.capacity)

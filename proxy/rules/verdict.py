"""What the rules say of one request. Pure."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from proxy.rules.buckets import TokenBucket
from proxy.rules.model import Mirror

if TYPE_CHECKING:
    from proxy.rules.effects import Active


class Refusal(NamedTuple):
    """The request is not served: by which rule, and what the client is told. code: a fault's response code."""

    kind: Literal["deny", "limit", "maintenance", "fault"]
    rule: str
    text: str
    code: int = 0


# What a request takes: from which bucket, how much.
Spending = Sequence[tuple[TokenBucket, float]]
# Told of the messages and bytes that the answer to a receive brought: whose count (the limit's key), and when.
Meter = Callable[[Hashable, int, int, float], None]


class Verdict:
    """What the rules say of one request.

    wait: seconds until it may be served, or refused by a fault. waits_for: the limit that it waits for. mirrors: where
    copies of its messages go.
    """

    __slots__ = ("_metered", "_taken", "allowed", "mirrors", "refusal", "wait", "waits_for")

    def __init__(self) -> None:
        # Most verdicts stay as they are made here: nothing is made for them.
        self.refusal: Refusal | None = None
        self.wait = 0.0
        self.waits_for = ""
        self.allowed = False
        self.mirrors: tuple[Active[Mirror], ...] = ()
        self._taken: tuple[tuple[TokenBucket, float], ...] = ()
        self._metered: tuple[tuple[Meter, Hashable], ...] = ()

    @property
    def metered(self) -> bool:
        """Whether the answer's messages are to be told to `answered`."""
        return bool(self._metered)

    def served(self, now: float) -> None:
        """The request is served now, so it counts. To be told only of one that waited for a limit."""
        taken, self._taken = self._taken, ()
        for bucket, amount in taken:
            bucket.take(amount, now)

    def answered(self, messages: int, size: int, now: float) -> None:
        """The answer to a receive brought so many messages, and bytes of them."""
        for meter, key in self._metered:
            meter(key, messages, size, now)

    # For rules.

    def copy_to(self, mirror: "Active[Mirror]") -> None:
        self.mirrors += (mirror,)

    def take(self, spending: Spending) -> None:
        self._taken += tuple(spending)

    def meter(self, meter: Meter, key: Hashable) -> None:
        self._metered += ((meter, key),)

    def conclude(self, now: float) -> None:
        """All rules have been asked."""
        if self.refusal is not None:
            self._taken = ()
            self._metered = ()
            self.mirrors = ()
        elif self._taken and not self.waits_for:
            self.served(now)

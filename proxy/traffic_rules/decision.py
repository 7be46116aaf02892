"""What the rules say of one request. Pure."""

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from proxy.traffic_rules.model import Mirror
from proxy.traffic_rules.token_buckets import TokenBucket

if TYPE_CHECKING:
    from proxy.traffic_rules.effects import Active


class Refusal(NamedTuple):
    """The request is not served: by which rule, and what the client is told. code: a fault's response code."""

    kind: Literal["deny", "limit", "maintenance", "fault"]
    rule: str
    text: str
    code: int = 0


# Told of the messages and bytes that the answer to a receive brought: whose count (the limit's key), and when.
Meter = Callable[[Hashable, int, int, float], None]


class Decision:
    """What the rules say of one request.

    wait: seconds until it may be served, or refused by a fault. waits_for: the limit that it waits for. mirrors: where
    copies of its messages go.
    """

    __slots__ = ("_metered", "_spent", "allowed", "mirrors", "refusal", "wait", "waits_for")

    def __init__(self) -> None:
        # Most verdicts stay as they are made here: nothing is made for them.
        self.refusal: Refusal | None = None
        self.wait = 0.0
        self.waits_for = ""
        self.allowed = False
        self.mirrors: tuple[Active[Mirror], ...] = ()
        self._spent: tuple[tuple[TokenBucket, float], ...] = ()
        self._metered: tuple[tuple[Meter, Hashable], ...] = ()

    @property
    def unconditional(self) -> bool:
        """Whether the request is served at once, and nothing is left to do after it."""
        return self.refusal is None and not (self.wait or self.mirrors or self._metered)

    @property
    def metered(self) -> bool:
        """Whether the answer's messages are to be told to `answered`."""
        return bool(self._metered)

    def served(self, now: float) -> None:
        """The request is served now, so it counts. To be told only of one that waited for a limit."""
        for bucket, amount in self._spent:
            bucket.take(amount, now)

    def answered(self, messages: int, size: int, now: float) -> None:
        """The answer to a receive brought so many messages, and bytes of them."""
        for meter, key in self._metered:
            meter(key, messages, size, now)

    # For rules.

    def copy_to(self, mirror: "Active[Mirror]") -> None:
        self.mirrors += (mirror,)

    def spend(self, spent: Iterable[tuple[TokenBucket, float]]) -> None:
        """So much was taken of these buckets, and is given back unless the request is served now."""
        self._spent += tuple(spent)

    def meter(self, meter: Meter, key: Hashable) -> None:
        self._metered += ((meter, key),)

    def conclude(self) -> None:
        """All rules have been asked."""
        if self.refusal is None and not self.waits_for:
            return
        for bucket, amount in self._spent:
            bucket.give_back(amount)
        if self.refusal is not None:
            self._spent = ()
            self._metered = ()
            self.mirrors = ()

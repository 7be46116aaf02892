"""Decision of the rules about one request. Pure."""

from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple

from proxy.traffic_rules.model import Mirror
from remoting.token_bucket import TokenBucket


class Rejection(NamedTuple):
    """The rejection of a request: the kind and name of the rule, the text for the client, a fault's response code."""

    kind: Literal["deny", "limit", "maintenance", "fault"]
    rule: str
    text: str
    code: int = 0


class MirrorCopy(NamedTuple):
    """A copy to send to another topic. on_send: called when the copy is sent; counts it for the rule."""

    rule: Mirror
    on_send: Callable[[], object]


# Charges a limit for a receive's reply: the bucket's key, messages, bytes, and the time in seconds.
Meter = Callable[[Hashable, int, int, float], None]


class Decision:
    """Decision of the rules about one request.

    Attributes:
        rejection: the rejection, if the request is not served.
        wait: seconds until the request is served, or rejected by a fault.
        waiting_limit: name of the limit rule that causes the wait; "" for a fault.
        allowed: whether an allow rule exempts the request from deny rules.
        mirrors: copies to send once the messages are stored.
    """

    __slots__ = ("_meters", "_spent", "allowed", "mirrors", "rejection", "wait", "waiting_limit")

    def __init__(self) -> None:
        # Most decisions keep these values: constants, so that nothing is allocated for them.
        self.rejection: Rejection | None = None
        self.wait = 0.0
        self.waiting_limit = ""
        self.allowed = False
        self.mirrors: tuple[MirrorCopy, ...] = ()
        self._spent: tuple[tuple[TokenBucket, float], ...] = ()
        self._meters: tuple[tuple[Meter, Hashable], ...] = ()

    @property
    def unconditional(self) -> bool:
        """Whether the request is served at once and nothing follows its reply."""
        return self.rejection is None and not (self.wait or self.mirrors or self._meters)

    @property
    def metered(self) -> bool:
        """Whether limits are charged for the reply by `meter`."""
        return bool(self._meters)

    def charge(self, now: float) -> None:
        """Charge the limits for a request that is served after it waited for one of them."""
        for bucket, amount in self._spent:
            bucket.take(amount, now)

    def meter(self, messages: int, size: int, now: float) -> None:
        """Charge the limits for the messages, and their bytes, in the reply to a receive."""
        for meter, key in self._meters:
            meter(key, messages, size, now)

    # For rules.

    def add_mirror(self, mirror: MirrorCopy) -> None:
        """Send a copy of the request's messages."""
        self.mirrors += (mirror,)

    def add_spent(self, spent: Iterable[tuple[TokenBucket, float]]) -> None:
        """Record tokens that were taken; they are given back unless the request is served now."""
        self._spent += tuple(spent)

    def add_meter(self, meter: Meter, key: Hashable) -> None:
        """Charge a limit for the reply."""
        self._meters += ((meter, key),)

    def conclude(self) -> None:
        """Give tokens back unless the request is served now. Called after the last rule."""
        if self.rejection is None and not self.waiting_limit:
            return
        for bucket, amount in self._spent:
            bucket.give_back(amount)
        if self.rejection is not None:
            self._spent = ()
            self._meters = ()
            self.mirrors = ()

"""Brokers' clocks, learned from their answers."""

import time

# How much later than it says a handle still counts, in ms: what an answer takes, and the second or so that brokers
# take to notice.
_GRACE = 1_500


class BrokerClocks:
    """How far brokers' clocks are from ours.

    Whether a handle has expired is for us to say: a broker takes an acknowledgement of a delivery that has long been
    handed out again as if it were good. The handle's times are the broker's, so its clock decides and not ours.
    """

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}

    def note(self, broker: str, pop_time: int) -> None:
        """A broker has just popped, at this time (ms) of its clock."""
        self._ahead[broker] = pop_time - time.time_ns() // 1_000_000

    def passed(self, broker: str, moment: int) -> bool:
        """Whether a moment (ms) of a broker's clock is past, for certain."""
        return moment + _GRACE < time.time_ns() // 1_000_000 + self._ahead.get(broker, 0)

"""Clock offsets of brokers, measured by their replies."""

import time

# Time after its expiry for which a receipt handle is still accepted, in ms: the latency of a reply. Brokers take a
# second or so to notice the expiry, but public test suites expect an error a second after it.
_GRACE = 500


class BrokerClocks:
    """Offsets between the brokers' clocks and this host's.

    The proxy has to detect expired receipt handles: a broker accepts the acknowledgement of a delivery although it
    has delivered the message again. The times of a handle are by the broker's clock, so its offset is needed.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}

    def update(self, broker: str, pop_time: int) -> None:
        """Measure a broker's offset by the time of a pop just answered, in ms by its clock."""
        self._offsets[broker] = pop_time - time.time_ns() // 1_000_000

    def has_passed(self, broker: str, moment: int) -> bool:
        """Return whether a time in ms of the broker's clock is past, allowing for the grace period."""
        return moment + _GRACE < time.time_ns() // 1_000_000 + self._offsets.get(broker, 0)

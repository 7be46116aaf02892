"""Clock offsets of brokers, measured by their replies."""

import time


class BrokerClocks:
    """Offsets between the brokers' clocks and this host's. grace: in seconds.

    The proxy has to detect expired receipt handles: a broker accepts the acknowledgement of a delivery although it
    has delivered the message again. The times of a handle are by the broker's clock, so its offset is needed.
    """

    def __init__(self, grace: float) -> None:
        self._grace = round(grace * 1000)
        self._offsets: dict[str, int] = {}

    def update(self, broker: str, pop_time: int) -> None:
        """Measure a broker's offset by the time of a pop just answered, in ms by its clock."""
        self._offsets[broker] = pop_time - time.time_ns() // 1_000_000

    def has_passed(self, broker: str, moment: int) -> bool:
        """Return whether a time in ms of the broker's clock is past, allowing for the grace period."""
        return moment + self._grace < time.time_ns() // 1_000_000 + self._offsets.get(broker, 0)

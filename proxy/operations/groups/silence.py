"""Brokers that leave requests of a survey unanswered."""

from collections import Counter
from collections.abc import Iterable

from remoting.errors import RemotingError, RequestTimeout, ServiceUnavailable

# Unanswered requests after which a survey asks a broker no further: each costs the timeout.
_MAX_UNANSWERED = 3


class Silence:
    """The brokers that leave requests of one survey unanswered.

    found: those with an unanswered request; given_up: those that are asked no further.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.given_up: set[str] = set()
        self._counts: Counter[str] = Counter()

    def give_up(self, brokers: Iterable[str]) -> None:
        """Ask these brokers no further."""
        self.given_up.update(brokers)
        self.found |= self.given_up

    def add(self, broker: str, error: RemotingError) -> None:
        """Count a failed request, unless the broker replied."""
        if not isinstance(error, RequestTimeout | ServiceUnavailable):
            return
        self.found.add(broker)
        self._counts[broker] += 1
        if self._counts[broker] >= _MAX_UNANSWERED:
            self.given_up.add(broker)

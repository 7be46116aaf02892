"""Memory of recent acknowledgements: brokers accept settlements of a message that has been acknowledged."""

from typing import Final

# Acknowledgements of a generation; one and the current part of another are kept, of 100 bytes each at most.
_GENERATION: Final = 50_000


class RecentAcks:
    """The handles of the last 50,000 to 100,000 acknowledged deliveries of this replica, as hashes."""

    __slots__ = ("_current", "_former")

    def __init__(self) -> None:
        self._current: set[int] = set()
        self._former: set[int] = set()

    def add(self, group: str, handle: str) -> None:
        """Record that a group has acknowledged the delivery of a handle."""
        if len(self._current) >= _GENERATION:
            self._former, self._current = self._current, set()
        self._current.add(hash((group, handle)))

    def __contains__(self, delivery: tuple[str, str]) -> bool:
        """Return whether a group has recently acknowledged the delivery of a handle."""
        key = hash(delivery)
        return key in self._current or key in self._former

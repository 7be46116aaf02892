"""The bound of one routine's work in one tick."""

from collections.abc import Callable

_MAX_SIZE = 4 * 1024 * 1024
MAX_SECONDS = 0.02


class WorkBudget:
    """Bytes of messages and time that a routine may use before it leaves the rest to the next tick.

    A bound on the number of messages is not enough: each of them may have megabytes. Other requests wait meanwhile.
    `clock` returns seconds.
    """

    __slots__ = ("_clock", "_end", "_size", "_used")

    def __init__(self, clock: Callable[[], float], seconds: float = MAX_SECONDS, size: int = _MAX_SIZE) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._size = size
        self._used = False

    def use(self, size: int = 0) -> None:
        """Count a piece of work with this many bytes of messages."""
        self._used = True
        self._size -= size

    @property
    def exhausted(self) -> bool:
        """Whether the rest has to wait. False before the first piece of work, so that there is always progress."""
        return self._used and (self._size <= 0 or self._clock() >= self._end)

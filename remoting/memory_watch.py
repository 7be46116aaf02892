"""Counts of bytes over all connections of a process that call for a look at its memory before the next timer does."""

from collections.abc import Callable

# Sizes in bytes from which a response is counted; smaller ones cannot fill the memory between two timers.
LARGE = 64 * 1024


class MemoryWatch:
    """Bytes that all connections hold for unfinished requests, and bytes of large responses.

    unfinished: bytes of requests that have not arrived in full. max_unfinished: bytes above which `on_full` is called.
    stride: bytes received and sent after which `on_stride` is called. Without an owner, nothing is limited.
    """

    __slots__ = ("_moved", "max_unfinished", "on_full", "on_stride", "stride", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        self.max_unfinished: float = float("inf")
        self.stride: float = float("inf")
        self.on_full: Callable[[], None] = _ignore
        self.on_stride: Callable[[], None] = _ignore
        self._moved = 0

    def hold(self, difference: int) -> None:
        """Add to the bytes of unfinished requests."""
        self.unfinished += difference
        if difference > 0:
            self.move(difference)
            if self.unfinished > self.max_unfinished:
                self.on_full()

    def move(self, size: int) -> None:
        """Count bytes that take memory until they are processed or sent."""
        self._moved += size
        if self._moved > self.stride:
            self._moved = 0
            self.on_stride()


def _ignore() -> None:
    """Do nothing."""


# For connections whose memory is bounded otherwise, such as those to brokers.
UNWATCHED = MemoryWatch()

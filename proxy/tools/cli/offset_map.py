"""Offsets of a source queue in the queue of an import's target."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from proxy.tools.cli.reading import Queue


class OffsetMap:
    """Offsets at the target for offsets of one source queue.

    The target may have other messages between those of the source, and the file may lack some. The size is that of the
    offsets asked for, which are known in advance, whatever the number of messages.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        # 0 stands for a group without an offset in this queue.
        self._offsets = sorted({0, *offsets})
        # Lowest offset at the target of the messages from each of the offsets to the next one.
        self._lowest: list[int | None] = [None] * len(self._offsets)
        self.end = 0

    def add(self, theirs: int, ours: int) -> None:
        """Add a message by its offsets at the source and at the target."""
        place = bisect_right(self._offsets, theirs) - 1
        lowest = self._lowest[place]
        self._lowest[place] = ours if lowest is None else min(lowest, ours)
        self.end = max(self.end, ours + 1)

    def first_from(self, offset: int) -> int | None:
        """Return the lowest offset at the target of all messages from this offset of the source on; None: no message.

        offset: 0 or one of those given in advance.
        """
        lowest = self._lowest[bisect_left(self._offsets, offset) :]
        return min((ours for ours in lowest if ours is not None), default=None)


def translate(maps: Mapping[Queue, OffsetMap], offsets: Mapping[Queue, int]) -> int:
    """Return the offset at the target of a group with these offsets at the source queues of one target queue.

    It is that of the first message that the group has not consumed, or else the one after the last message. A source
    queue without an offset counts as not consumed.
    """
    firsts = [found.first_from(offsets.get(source, 0)) for source, found in maps.items()]
    unconsumed = [first for first in firsts if first is not None]
    return min(unconsumed) if unconsumed else max(found.end for found in maps.values())

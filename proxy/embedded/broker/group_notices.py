"""Notices of changed consumer groups. Sans-io; times in ms.

Members that start together are notified of each other at once, as by RocketMQ's broker: until a member knows the
others, it consumes from their queues. Further notices are coalesced: a client that joins and leaves a group again and
again would make all members look for their queues each time.
"""

from collections.abc import Callable
from typing import Final

# Time per notice of one group, on average.
INTERVAL: Final = 200
# Notices of one group that are sent at once.
BURST: Final = 20
_MAX_AHEAD: Final = (BURST - 1) * INTERVAL


class GroupNotices:
    """Calls `send` with a group that has changed: BURST times at once, and then once per interval."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        # By group: the end of the intervals of its notices, and whether it has changed since the last one.
        self._recent: dict[str, tuple[int, bool]] = {}

    def changed(self, group: str, now: int) -> None:
        """Notify a group's members now, or when the notices of the group permit it."""
        end = max(now, self._recent.get(group, (now, False))[0])
        if end - now > _MAX_AHEAD:
            self._recent[group] = end, True
            return
        self._recent[group] = end + INTERVAL, False
        self._send(group)

    def tick(self, now: int) -> None:
        """Send the notices that are permitted now."""
        for group, (end, changed) in list(self._recent.items()):
            if changed:
                self.changed(group, now)
            elif end <= now:
                del self._recent[group]

"""Notices of changed consumer groups, coalesced: a client that joins and leaves a group again and again would have all
members of the group look for their queues each time. Sans-io; times in ms."""

from collections.abc import Callable
from typing import Final

# Time between two notices of one group; the first one is sent at once.
INTERVAL: Final = 200


class GroupNotices:
    """Calls `send` with a group that has changed, at most once per interval."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        # By group that was notified within the interval: its end, and whether the group has changed since.
        self._recent: dict[str, tuple[int, bool]] = {}

    def changed(self, group: str, now: int) -> None:
        """Notify a group's members now, or at the end of the interval."""
        recent = self._recent.get(group)
        if recent is not None and now < recent[0]:
            self._recent[group] = recent[0], True
            return
        self._recent[group] = now + INTERVAL, False
        self._send(group)

    def tick(self, now: int) -> None:
        """Send the notices whose interval has ended."""
        for group, (end, changed) in list(self._recent.items()):
            if now < end:
                continue
            del self._recent[group]
            if changed:
                self.changed(group, now)

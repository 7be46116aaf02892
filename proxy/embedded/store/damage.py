"""What was found on the disk that nobody wrote."""

import logging

_log = logging.getLogger(__name__)

# After so many it is the disk that has to be looked at, not each record.
_REMEMBERED = 10_000


class Damage:
    """Counts and logs each damaged thing once, however often it is read."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[object] = set()

    def report(self, what: object, text: str) -> None:
        """`what` tells one from another."""
        if what in self._known or len(self._known) >= _REMEMBERED:
            return
        self._known.add(what)
        self.count += 1
        _log.error("%s", text)

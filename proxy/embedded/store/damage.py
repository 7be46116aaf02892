"""Count of the damage found on the disk."""

import logging

_log = logging.getLogger(__name__)

# More damaged records are not reported one by one: the disk has to be examined.
_MAX_REPORTED = 10_000


class Damage:
    """Counts and logs each damaged record or value once, however often it is read."""

    def __init__(self) -> None:
        self.count = 0
        self._reported: set[object] = set()

    def report(self, identity: object, text: str) -> None:
        """Log `text` unless damage of this identity was reported before."""
        if identity in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add(identity)
        self.count += 1
        _log.error("%s", text)

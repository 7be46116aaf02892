"""Room kept on the disk for what has to go through when there is none for messages: acknowledgements, offsets.

It is a file that is given up when the disk is full, and made again once there is room. Looking at the free space would
not do: quotas do not show there, and other processes write to the disk too.
"""

import logging
from pathlib import Path

from proxy.embedded.store.files import Files

_log = logging.getLogger(__name__)


class DiskReserve:
    """A file of so many bytes; 0: there is none, and it is never spent."""

    def __init__(self, path: Path, files: Files, size: int) -> None:
        self._path = path
        self._files = files
        self._size = size
        # Given up: there is room for small things only.
        self.spent = False
        if size and not self._is_whole() and not self._make():
            self._spend()

    def _is_whole(self) -> bool:
        try:
            return self._path.stat().st_size >= self._size
        except OSError:
            return False

    def fill(self) -> None:
        """Make the file again where there is room for it."""
        if self.spent and self._make():
            self.spent = False
            _log.info("the disk of %s has room again", self._path.parent)

    def give_up(self) -> bool:
        """Make room; false where there is none to be made."""
        if self.spent or not self._size:
            return False
        self._spend()
        return self._try_to_remove()

    def _spend(self) -> None:
        self.spent = True
        _log.error("the disk of %s is full: no messages are stored until there is room", self._path.parent)

    def _make(self) -> bool:
        try:
            self._remove()
            file = self._files.create(self._path)
            try:
                self._files.allocate(file, self._size)
            finally:
                self._files.close(file)
        except OSError:
            self._try_to_remove()
            return False
        return True

    def _try_to_remove(self) -> bool:
        try:
            self._remove()
        except OSError:
            return False
        return True

    def _remove(self) -> None:
        if self._path.exists():
            self._files.unlink(self._path)

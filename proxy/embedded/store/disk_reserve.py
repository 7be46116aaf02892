"""Disk space kept for acknowledgements and offsets, which are written when there is no room for messages.

The reserve is a file that is removed when the disk is full, and created again once there is room. Checking the free
space would not suffice: it does not show quotas, and other processes write to the disk too.
"""

import logging
from pathlib import Path

from proxy.embedded.store.files import Files

_log = logging.getLogger(__name__)


class DiskReserve:
    """A file of `size` bytes; with size 0 there is no file, and the reserve is never spent."""

    def __init__(self, path: Path, files: Files, size: int) -> None:
        self._path = path
        self._files = files
        self._size = size
        # The file is removed: there is room for tables only.
        self.spent = False
        if size and not self._is_complete() and not self._create():
            self._spend()

    def _is_complete(self) -> bool:
        try:
            return self._path.stat().st_size >= self._size
        except OSError:
            return False

    def fill(self) -> None:
        """Create the file again if there is room for it."""
        if self.spent and self._create():
            self.spent = False
            _log.info("the disk of %s has room again", self._path.parent)

    def give_up(self) -> bool:
        """Remove the file to make room; false if it is spent already or cannot be removed."""
        if self.spent or not self._size:
            return False
        self._spend()
        return self._try_remove()

    def _spend(self) -> None:
        self.spent = True
        _log.error("the disk of %s is full: no messages are stored until there is room", self._path.parent)

    def _create(self) -> bool:
        try:
            self._remove()
            file = self._files.create(self._path)
            try:
                self._files.allocate(file, self._size)
            finally:
                self._files.close(file)
        except OSError:
            self._try_remove()
            return False
        return True

    def _try_remove(self) -> bool:
        try:
            self._remove()
        except OSError:
            return False
        return True

    def _remove(self) -> None:
        if self._path.exists():
            self._files.unlink(self._path)

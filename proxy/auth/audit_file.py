"""The file of the audit log, which all workers of a replica write."""

import fcntl
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MODE = 0o600


class AuditFile(logging.Handler):
    """A file with a line per record, which is rotated at a size. Raises OSError from the constructor.

    Several processes may have one open. Each write holds the lock of the file (flock): the process whose line exceeds
    the size rotates the files, and the others go on in the new one. Only the owner can read the files.

    size: maximum in bytes. files: rotated ones that are kept, as PATH.1 (the newest), PATH.2, …
    on_lost: called for each line that cannot be written.
    """

    def __init__(self, path: Path, size: int, files: int, on_lost: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        # The working directory may change.
        self._path = path.absolute()
        self._size = size
        self._files = files
        self._on_lost = on_lost
        self._descriptor = self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record."""
        try:
            self._write(f"{self.format(record)}\n".encode("utf-8", "replace"))
        except Exception:  # as of the handlers of `logging`: a full disk fails no request
            self._on_lost()
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        super().close()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)

    def _write(self, line: bytes) -> None:
        while not self._written(line):
            former, self._descriptor = self._descriptor, self._open()
            os.close(former)

    def _written(self, line: bytes) -> bool:
        """Write a line; return False if the file was rotated, by this or another process, and must be opened again."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            found = os.fstat(self._descriptor)
            if not self._is_current(found):
                return False
            if found.st_size and found.st_size + len(line) > self._size:
                self._rotate()
                return False
            self._append(line, found.st_size)
            return True
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _append(self, line: bytes, size: int) -> None:
        """Write a line at the end of the file of this size, all or nothing: the rest of a full disk has room for a part
        of a line, to which the next line would be joined. Raises OSError."""
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def _is_current(self, found: os.stat_result) -> bool:
        try:
            return os.path.samestat(found, self._path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        for number in range(self._files, 1, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number - 1}", f"{self._path}.{number}")
        # At last: from now on, another process may lock a new file, and rotate that.
        os.replace(self._path, f"{self._path}.1")

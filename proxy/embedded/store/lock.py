"""One process per directory."""

import fcntl
import os
from pathlib import Path

from proxy.embedded.store.errors import StoreLocked


class DirectoryLock:
    """Held from construction to `release`, or to the end of the process. Raises StoreLocked."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLocked(f"{directory} is in use by another process (pid {holder})") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Closing the file gives the lock back."""
        os.close(self._file)

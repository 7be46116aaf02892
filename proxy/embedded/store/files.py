"""The file calls that durability depends on, in one place: tests substitute a faulty disk."""

import errno
import os
from pathlib import Path

# macOS has no fdatasync.
_sync = getattr(os, "fdatasync", os.fsync)


class Files:
    """The operating system's files. All calls raise OSError."""

    def create(self, path: Path) -> int:
        """Create a file and open it for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path, writable: bool = False) -> int:
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, file: int) -> None:
        os.close(file)

    def read(self, file: int, size: int, position: int) -> bytes:
        return os.pread(file, size, position)

    def write(self, file: int, data: bytes, position: int) -> int:
        """Return the number of bytes written, which may be fewer than given."""
        return os.pwrite(file, data, position)

    def write_all(self, file: int, data: bytes, position: int) -> None:
        """Write all bytes."""
        written = self.write(file, data, position)
        while written < len(data):
            more = self.write(file, data[written:], position + written)
            if not more:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += more

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def allocate(self, file: int, size: int) -> None:
        """Allocate disk space for an empty file."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        else:
            # macOS.
            self.write_all(file, bytes(size), 0)

    def sync(self, file: int) -> None:
        """Make contents and size durable."""
        _sync(file)

    def open_directory(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_directory(self, path: Path) -> None:
        """Make the creation and removal of names in a directory durable."""
        file = self.open_directory(path)
        try:
            self.sync_names(file, path)
        finally:
            os.close(file)

    def sync_names(self, file: int, path: Path) -> None:
        """Make the names in a directory durable, whose descriptor is `file`."""
        os.fsync(file)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

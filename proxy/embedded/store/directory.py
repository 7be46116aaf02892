"""The directory of a store: its creation, its lock and its format."""

import fcntl
import json
import os
from pathlib import Path

from proxy.embedded.store.errors import StoreLocked, UnknownFormat
from proxy.embedded.store.files import Files

VERSION = 1
_FORMAT_FILE = "format"


def create(directory: Path, files: Files) -> None:
    """Create a private directory that survives a crash, unless it exists."""
    if not directory.is_dir():
        directory.mkdir(mode=0o700, parents=True)
        files.sync_directory(directory.parent)


class DirectoryLock:
    """A lock on the directory from construction to `release`, or to the end of the process. Raises StoreLocked."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLocked(f"{directory} is in use by another process (pid {holder})") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock, by closing its file."""
        os.close(self._file)


def check_format(directory: Path, files: Files) -> None:
    """Check that the directory has the current format, which a new one is given. Raises UnknownFormat, OSError."""
    path = directory / _FORMAT_FILE
    if not path.exists():
        _write_format(directory, files)
        return
    try:
        version = int(json.loads(path.read_bytes())["version"])
    except (ValueError, TypeError, KeyError):
        raise UnknownFormat(f"{path} does not contain the format of the directory; it may be damaged") from None
    if version != VERSION:
        raise UnknownFormat(
            f"{directory} has format {version}, this version of Gantry supports {VERSION}: use a later one"
        )


def _write_format(directory: Path, files: Files) -> None:
    """Write the format file under another name and rename it, so that it is never incomplete."""
    new = directory / f"{_FORMAT_FILE}.new"
    new.unlink(missing_ok=True)
    file = files.create(new)
    try:
        files.write_all(file, json.dumps({"version": VERSION}).encode() + b"\n", 0)
        files.sync(file)
    finally:
        files.close(file)
    os.replace(new, directory / _FORMAT_FILE)
    files.sync_directory(directory)

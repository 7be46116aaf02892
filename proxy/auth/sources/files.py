"""Users and policies in files, which are loaded again when they change."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread

from proxy.auth.policy import Directory
from proxy.auth.sources.source import AuthError
from proxy.settings.secret_files import check_mode
from proxy.settings.written_files import is_complete

_log = logging.getLogger("gantry.auth")

_Stamp = tuple[tuple[str, int, int, int, int], ...] | str


class _Unreadable(AuthError):
    """A file cannot be read now. It may be later, without a change that its stamp shows."""


class FileSource:
    """Users and policies of a file. Raises AuthError from the constructor.

    parse: returns the directory of a text; raises ValueError. patterns: globs of the files, if the path is a
    directory.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        parse: Callable[[list[tuple[str, str]]], Directory],
        patterns: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.error: str | None = None
        self._path = path
        self._parse = parse
        self._patterns = patterns
        # The version that is not usable: it is not parsed again.
        self._rejected: _Stamp | None = None
        # A caller that has changed a file waits for the load which another one has begun.
        self._refreshing = asyncio.Lock()
        self._stamp, self.directory = self._load()

    async def refresh(self) -> bool:
        """Load the files again if they have changed and are complete.

        An unusable version is logged, and the former remains.
        """
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> bool:
        stamp = await anyio.to_thread.run_sync(self._read_stamp)
        if stamp == self._stamp:
            self.error = self._rejected = None
            return self._expire()
        if stamp == self._rejected:
            return self._expire()
        if not await is_complete(self._read_stamp):
            self._failed(f"{self._path}: it is still being written")
            return self._expire()
        try:
            self._stamp, self.directory = await anyio.to_thread.run_sync(self._load)
        except AuthError as error:
            self._rejected = None if isinstance(error, _Unreadable) else stamp
            self._failed(str(error))
            return self._expire()
        self.error = self._rejected = None
        _log.info("loaded %d users from %s", len(self.directory.users), self._path)
        return True

    def _failed(self, problem: str) -> None:
        if problem != self.error:
            _log.error("changed users and policies are not usable, the former remain in force: %s", problem)
        self.error = problem

    def _expire(self) -> bool:
        """Disable the expired users; return whether there are some."""
        now = time.time()
        if now < self.directory.next_expiry:
            return False
        self.directory = self.directory.at(now)
        _log.info("users of %s have expired", self._path)
        return True

    def _files(self) -> list[Path]:
        if not self._patterns or not self._path.is_dir():
            return [self._path]
        return sorted({file for pattern in self._patterns for file in self._path.rglob(pattern)})

    def _read_stamp(self) -> _Stamp:
        try:
            stats = [(str(file), file.stat()) for file in self._files()]
        except OSError as error:
            return str(error)
        # The change time shows a changed mode, and the time of change a file that was written in place.
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats)

    def _load(self) -> tuple[_Stamp, Directory]:
        """Return the stamp and the content of the files. Raises only AuthError, so that no error ends the reload."""
        stamp = self._read_stamp()
        try:
            return stamp, self._parse([(str(file), _read(file)) for file in self._files()])
        except OSError as error:
            raise _Unreadable(f"{error.filename or self._path}: {error.strerror}") from None
        except ValueError as error:
            raise AuthError(str(error)) from None
        except Exception as error:
            # Its text may be a secret of the file.
            raise AuthError(f"{self._path}: not usable: {type(error).__name__}") from None


def _read(file: Path) -> str:
    """Return the text of a file. Raises ValueError, OSError."""
    check_mode(file)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}: not UTF-8 text") from None

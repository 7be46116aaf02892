"""Reloading of the rules file when it changes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from proxy.settings.written_files import is_complete
from proxy.traffic_rules.model import RuleFile
from proxy.traffic_rules.parsing import RulesError, parse

_log = logging.getLogger("gantry.rules")


# Time of modification in nanoseconds, size in bytes and inode of a file, or the error text if it cannot be read.
_Stamp = tuple[int, int, int] | str


class ReloadOutcome(StrEnum):
    """Outcome of a check of the file; the values are metric labels."""

    UNCHANGED = "unchanged"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of the file. rules: its contents, or the error text."""

    stamp: _Stamp
    rules: RuleFile | str


# No file has this stamp, so the next check reads the file.
_INCOMPLETE = _Version("", "it is still being written")


class RulesReloader:
    """Reads the rules file, at the start and when it changes.

    apply: puts rules into force. error: the reason why the file's current version is not in force, or None. counts:
    number of changed versions by outcome. Raises RulesError from the constructor if the file is invalid.
    """

    def __init__(self, file: Path | None, apply: Callable[[RuleFile], None]) -> None:
        self._file = file
        self._apply = apply
        self._stamp: _Stamp | None = None
        self._lock = asyncio.Lock()
        self.error: str | None = None
        self.counts: Counter[str] = Counter()
        if file is not None:
            version = _read(file)
            if isinstance(version.rules, str):
                raise RulesError(f"rules.file: {file}: {version.rules}")
            self._stamp = version.stamp
            apply(version.rules)

    async def reload(self) -> ReloadOutcome:
        """Check the file and apply it if it has changed and is complete.

        An invalid version is logged and the former rules remain.
        """
        file = self._file
        if file is None:
            return ReloadOutcome.UNCHANGED
        async with self._lock:
            if await anyio.to_thread.run_sync(_stamp_of, file) == self._stamp:
                return ReloadOutcome.UNCHANGED
            version = _INCOMPLETE
            if await is_complete(partial(_stamp_of, file)):
                version = await anyio.to_thread.run_sync(_read, file)
                if version.stamp == self._stamp:
                    # The file has its former version again.
                    return ReloadOutcome.UNCHANGED
            outcome = self._adopt(file, version)
            self.counts[outcome.value] += 1
            return outcome

    def _adopt(self, file: Path, version: _Version) -> ReloadOutcome:
        """Put a changed version into force, or log why it is invalid."""
        self._stamp = version.stamp
        if isinstance(version.rules, str):
            self.error = version.rules
            _log.error("rules file %s is invalid, the former rules remain in force: %s", file, version.rules)
            return ReloadOutcome.FAILED
        self.error = None
        self._apply(version.rules)
        _log.info("loaded %d rules from %s", len(version.rules.rule), file)
        return ReloadOutcome.LOADED


def _stamp_of(file: Path) -> _Stamp:
    try:
        status = file.stat()
    except OSError as error:
        return _text(error)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _text(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read(file: Path) -> _Version:
    """Return the file's version; if it cannot be read, its stamp is the error text."""
    stamp = _stamp_of(file)
    try:
        return _Version(stamp, parse(file.read_text(encoding="utf-8")))
    except RulesError as error:
        return _Version(stamp, str(error))
    except (OSError, UnicodeDecodeError) as error:
        return _Version(_text(error), _text(error))

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


class ReloadOutcome(StrEnum):
    """Outcome of a check of the file; the values are metric labels."""

    UNCHANGED = "unchanged"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of the file. stamp: differs between versions; rules: its contents, or the error text."""

    stamp: object
    rules: RuleFile | str


class RulesReloader:
    """Reads the rules file, at the start and when it changes.

    apply: puts rules into force. error: the reason why the file's current version is not in force, or None. counts:
    number of changed versions by outcome. Raises RulesError from the constructor if the file is invalid.
    """

    def __init__(self, file: Path | None, apply: Callable[[RuleFile], None]) -> None:
        self._file = file
        self._apply = apply
        self._stamp: object = None
        self._lock = asyncio.Lock()
        self.error: str | None = None
        self.counts: Counter[str] = Counter()
        if file is not None:
            version = _read(file)
            assert version is not None
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
            complete = await is_complete(partial(_stamp_of, file))
            version = await anyio.to_thread.run_sync(_read, file, self._stamp) if complete else _INCOMPLETE
            if version is None:
                return ReloadOutcome.UNCHANGED
            self._stamp = version.stamp
            if isinstance(version.rules, str):
                self.error = version.rules
                outcome = ReloadOutcome.FAILED
                _log.error("rules file %s is invalid, the former rules remain in force: %s", file, version.rules)
            else:
                self.error = None
                outcome = ReloadOutcome.LOADED
                self._apply(version.rules)
                _log.info("loaded %d rules from %s", len(version.rules.rule), file)
            self.counts[outcome.value] += 1
            return outcome


# Its stamp is that of no file, so that the next check reads the file.
_INCOMPLETE = _Version("", "it is still being written")


def _stamp_of(file: Path) -> object:
    """Return a value that differs between versions of a file."""
    try:
        status = file.stat()
    except OSError as error:
        return _text(error)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _text(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read(file: Path, known_stamp: object = None) -> _Version | None:
    """Return the file's version; None if its stamp is still `known_stamp`."""
    stamp = _stamp_of(file)
    try:
        text = file.read_text(encoding="utf-8") if stamp != known_stamp else ""
    except (OSError, UnicodeDecodeError) as error:
        problem = _text(error)
        return None if problem == known_stamp else _Version(problem, problem)
    if stamp == known_stamp:
        return None
    try:
        return _Version(stamp, parse(text))
    except RulesError as error:
        return _Version(stamp, str(error))

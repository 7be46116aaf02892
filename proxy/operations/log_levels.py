"""Log levels at run time: set for one logger, for a time or forever."""

import asyncio
import logging
from dataclasses import dataclass

# Names of levels in the settings.
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
ROOT = "root"


@dataclass(slots=True)
class _Override:
    former: int
    timer: asyncio.TimerHandle | None
    # End of the override, in seconds of the loop's clock.
    until: float


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """A logger's level. changed: whether it was set here; remaining: seconds until it is reset, None: not at all."""

    name: str
    level: str
    changed: bool
    remaining: float | None


class LogLevels:
    """All changed levels, with the levels before the changes."""

    def __init__(self) -> None:
        self._overrides: dict[str, _Override] = {}

    def all(self) -> list[LoggerLevel]:
        """Return all loggers by name, the root first."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name, item in known.items() if isinstance(item, logging.Logger))
        return [self.get(name) for name in (ROOT, *names)]

    def exists(self, name: str) -> bool:
        """Return whether this logger exists."""
        return name == ROOT or isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)

    def get(self, name: str) -> LoggerLevel:
        """Return a logger's level."""
        override = self._overrides.get(name)
        level = logging.getLevelName(_logger(name).getEffectiveLevel()).lower()
        remaining = None
        if override is not None and override.timer is not None:
            remaining = max(override.until - asyncio.get_running_loop().time(), 0.0)
        return LoggerLevel(name, level, override is not None, remaining)

    def set(self, name: str, level: str, seconds: float | None) -> None:
        """Set a logger's level; after `seconds` restore the level before the first change."""
        logger = _logger(name)
        override = self._overrides.pop(name, None)
        if override is not None and override.timer is not None:
            override.timer.cancel()
        former = logger.level if override is None else override.former
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self.reset, name)
        self._overrides[name] = _Override(former, timer, loop.time() + (seconds or 0.0))
        logger.setLevel(LEVELS[level])

    def reset(self, name: str) -> None:
        """Restore a logger's level."""
        override = self._overrides.pop(name, None)
        if override is not None:
            if override.timer is not None:
                override.timer.cancel()
            _logger(name).setLevel(override.former)

    def configured(self, level: str) -> None:
        """Set the configured level of the root logger; it takes effect when an override ends."""
        override = self._overrides.get(ROOT)
        if override is None:
            logging.root.setLevel(LEVELS[level])
        else:
            override.former = LEVELS[level]

    def close(self) -> None:
        """Restore all levels."""
        for name in list(self._overrides):
            self.reset(name)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)

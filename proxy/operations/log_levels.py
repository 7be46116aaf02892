"""Log levels at run time: set for one logger, for good or for a while."""

import asyncio
import logging
from dataclasses import dataclass

# The names that the settings use.
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
ROOT = "root"


@dataclass(slots=True)
class _Override:
    former: int
    timer: asyncio.TimerHandle | None
    # When it ends, in seconds of the loop's clock.
    until: float


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """One logger: the level in force, whether it was set here, and for how many more seconds (None: for good)."""

    name: str
    level: str
    changed: bool
    remaining: float | None


class LogLevels:
    """Knows which levels were changed, and what they were before."""

    def __init__(self) -> None:
        self._overrides: dict[str, _Override] = {}

    def all(self) -> list[LoggerLevel]:
        """Every logger there is, by name."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name, item in known.items() if isinstance(item, logging.Logger))
        return [self.one(name) for name in (ROOT, *names)]

    def knows(self, name: str) -> bool:
        """Whether there is such a logger."""
        return name == ROOT or isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)

    def one(self, name: str) -> LoggerLevel:
        """A logger as it is now."""
        override = self._overrides.get(name)
        level = logging.getLevelName(_logger(name).getEffectiveLevel()).lower()
        remaining = None
        if override is not None and override.timer is not None:
            remaining = max(override.until - asyncio.get_running_loop().time(), 0.0)
        return LoggerLevel(name, level, override is not None, remaining)

    def set(self, name: str, level: str, seconds: float | None) -> None:
        """Set a logger's level; after `seconds` it is again what it was before anybody changed it here."""
        logger = _logger(name)
        known = self._overrides.pop(name, None)
        if known is not None and known.timer is not None:
            known.timer.cancel()
        former = logger.level if known is None else known.former
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self.reset, name)
        self._overrides[name] = _Override(former, timer, loop.time() + (seconds or 0.0))
        logger.setLevel(LEVELS[level])

    def reset(self, name: str) -> None:
        """Give a logger the level back that it had."""
        override = self._overrides.pop(name, None)
        if override is not None:
            if override.timer is not None:
                override.timer.cancel()
            _logger(name).setLevel(override.former)

    def configured(self, level: str) -> None:
        """The configuration says another level for everything: an override of the root outlives that."""
        override = self._overrides.get(ROOT)
        if override is None:
            logging.root.setLevel(LEVELS[level])
        else:
            override.former = LEVELS[level]

    def close(self) -> None:
        """Undo everything."""
        for name in list(self._overrides):
            self.reset(name)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)

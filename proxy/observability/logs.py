"""Logging: text or JSON lines, with a limit on repeated lines."""

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from proxy.observability.log_stream import handler_of
from proxy.settings.logs import LogSettings

_TEXT = "%(asctime)s %(levelname)-7s {worker}%(name)s: %(message)s"
# Seconds in which lines of one kind are counted, and the number of kinds that are counted.
_WINDOW = 10.0
_MAX_KINDS = 1_000
# Loggers without a limit, because every line of them is needed.
_UNLIMITED = frozenset({"gantry.access", "gantry.audit", "gantry.connections"})


def configure(settings: LogSettings, level: str, stream: TextIO | None = None, worker: int | None = None) -> None:
    """Write all log lines of this process to `stream` (default: standard error).

    `worker` is the number of the process among several workers, which is then part of each line.
    """
    handler = handler_of(stream)
    handler.setFormatter(JsonFormatter(worker) if settings.format == "json" else TextFormatter(worker))
    handler.addFilter(BurstFilter(settings.burst))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """Formats a record as text. Control characters are escaped, so that names from clients cannot forge lines."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__(_TEXT.format(worker="" if worker is None else f"worker {worker} "))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without exception and stack."""
        if not record.message.isprintable():
            record.message = _replace_unprintable(_escape, record.message)
        return super().formatMessage(record)


# Control characters, surrogates, line separators and marks that change the direction of writing.
_replace_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]").sub


def _escape(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time (UTC), level, logger, worker, message, and the record's fields."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            # orjson rejects lone surrogates and integers over 64 bits.
            return json.dumps(line, default=str)


class BurstFilter(logging.Filter):
    """Passes at most `max_lines` lines of a kind (logger, level and unformatted text) in ten seconds.

    The first line after a burst has the number of lines that were left out.
    """

    def __init__(self, max_lines: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._max_lines = max_lines
        self._clock = clock
        self._windows: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        if record.name in _UNLIMITED:
            return True
        kind = record.name, record.levelno, str(record.msg)
        now = self._clock()
        started, count = self._windows.get(kind, (now, 0))
        if now - started >= _WINDOW:
            if count > self._max_lines:
                record.msg = f"{record.msg} ({count - self._max_lines} more of these were not written)"
            started, count = now, 0
        if kind not in self._windows and len(self._windows) >= _MAX_KINDS:
            self._windows.clear()
        self._windows[kind] = started, count + 1
        return count < self._max_lines

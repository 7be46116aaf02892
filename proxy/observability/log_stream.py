"""Standard error of a process that serves clients: its reader may hang, and its disk may be full."""

import logging
import os
import select
import sys
from collections.abc import Iterator
from typing import TextIO

from proxy.observability.metrics.family import Family, Kind, Samples

LOST_LINES = Family(
    "gantry_log_lost_lines",
    Kind.COUNTER,
    "Log lines that could not be written to standard error, because its reader hangs or its disk is full.",
)
# Bytes of one write. A pipe that is ready takes as many without blocking (PIPE_BUF, pipe(7)).
_CHUNK = 4096
# Milliseconds to wait for a reader that is slow. One that hangs is waited for once, until it reads again.
_WAIT = 200


class LogStream(logging.StreamHandler[TextIO]):
    """Writes lines to a stream with a descriptor, and drops and counts those that would block the process.

    An event loop that waits for the reader of its log serves no client. lost: number of dropped lines.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._descriptor = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._wait = _WAIT
        self._is_partial = False
        self._unreported = 0
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record."""
        try:
            line = f"{self.format(record)}{self.terminator}"
        except Exception:  # as of the handlers of `logging`: a faulty line fails no request
            self.handleError(record)
            return
        if self._unreported:
            line = f"{self._report()}{line}"
        if self._written(line.encode("utf-8", "backslashreplace")):
            self._unreported = 0
        else:
            self._unreported += 1
            self.lost += 1

    def _report(self) -> str:
        """Return the line about those that were not written, after the end of one of which a part was written."""
        values = {"name": "gantry", "levelno": logging.WARNING, "levelname": "WARNING"}
        text = f"{self._unreported} log lines were not written"
        line = self.format(logging.makeLogRecord({**values, "msg": text}))
        return f"{self.terminator if self._is_partial else ''}{line}{self.terminator}"

    def _written(self, line: bytes) -> bool:
        """Write a line; return False if that would block for long, or fails."""
        left = memoryview(line)
        try:
            while left and self._poll.poll(self._wait):
                left = left[os.write(self._descriptor, left[:_CHUNK]) :]
                self._is_partial = bool(left)
                self._wait = _WAIT
        except OSError:
            return False
        if left:
            self._wait = 0
        return not left


def handler_of(stream: TextIO | None) -> logging.Handler:
    """Return the handler that writes lines to a stream, by default standard error.

    A stream without a descriptor does not block.
    """
    try:
        return LogStream(sys.stderr if stream is None else stream)
    except (AttributeError, OSError):
        return logging.StreamHandler(stream)


def read_metrics() -> Iterator[tuple[Family, Samples]]:
    """Yield the count of lines that the log of this process has lost."""
    handlers = logging.getLogger().handlers
    yield LOST_LINES, {(): sum(handler.lost for handler in handlers if isinstance(handler, LogStream))}

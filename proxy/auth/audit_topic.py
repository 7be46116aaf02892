"""The audit log as messages of a topic: one message for each line, sent in the background."""

import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import anyio

from proxy.auth.audit import LOGGER
from proxy.observability.metrics.family import Family, Kind, Samples, by_label
from remoting.errors import RemotingError
from remoting.tasks import every

_log = logging.getLogger("gantry.auth")

# Lines that wait to be sent; further ones are dropped.
_MAX_WAITING = 10_000
# Lines per batch. A line has at most about 5 KB.
_MAX_BATCH = 100
# Seconds between attempts, and attempts after which a batch is given up.
_INTERVAL = 1.0
_MAX_ATTEMPTS = 60
# Timeout in seconds for the last lines at shutdown.
_FLUSH_TIMEOUT = 1.0
LINES = Family(
    "gantry_audit_topic_lines",
    Kind.COUNTER,
    "Lines of the audit log for `auth.audit_topic`: written, failed (given up after repeated attempts), or"
    " dropped because too many were waiting.",
    ("outcome",),
)


class AuditTopic:
    """Sends the lines of the audit log to a topic.

    send: sends messages with these bodies as Gantry itself, or raises RemotingError. It bypasses the checks of clients'
    requests, so that it causes no further lines. counts: lines by outcome.
    """

    def __init__(self, topic: str, send: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
        self._topic = topic
        self._send = send
        self._waiting: deque[bytes] = deque()
        self._attempts = 0
        self._failing = False
        self.counts: Counter[str] = Counter()

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        """Collect lines inside the context, and send the waiting ones at its end."""
        handler = _LineHandler(self._add)
        logger = logging.getLogger(LOGGER)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            with anyio.move_on_after(_FLUSH_TIMEOUT):
                await self._flush()
            if self._waiting:
                _log.warning("%d lines of the audit log did not reach the topic %s", len(self._waiting), self._topic)

    async def run(self) -> None:
        """Send waiting lines each second until cancelled."""
        await every(_INTERVAL, self._flush, name="audit log to a topic")

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield LINES, by_label(self.counts)

    def _add(self, line: str) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self.counts["dropped"] += 1
            return
        self._waiting.append(line.encode("utf-8", "replace"))

    async def _flush(self) -> None:
        """Send the waiting lines, up to the first batch that fails."""
        while self._waiting:
            batch = list(islice(self._waiting, _MAX_BATCH))
            if await self._sent(batch):
                outcome = "written"
            else:
                self._attempts += 1
                if self._attempts < _MAX_ATTEMPTS:
                    return
                outcome = "failed"
            self._attempts = 0
            # Only now, so that a cancelled attempt loses nothing.
            for _ in batch:
                self._waiting.popleft()
            self.counts[outcome] += len(batch)

    async def _sent(self, batch: Sequence[bytes]) -> bool:
        try:
            await self._send(batch)
        except RemotingError as error:
            if not self._failing:
                self._failing = True
                _log.warning("the audit log is not written to the topic %s, retrying: %s", self._topic, error)
            return False
        if self._failing:
            self._failing = False
            _log.info("the audit log is written to the topic %s again", self._topic)
        return True


class _LineHandler(logging.Handler):
    """Passes on the message of each log record."""

    def __init__(self, receive: Callable[[str], None]) -> None:
        super().__init__()
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on the message."""
        self._receive(record.getMessage())

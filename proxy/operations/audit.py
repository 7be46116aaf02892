"""The audit trail: every write request, successful or not, as a log line and in a ring."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import orjson

from proxy.operations.event_log import Ring
from remoting.token_bucket import TokenBucket

LOGGER = "gantry.audit"
_log = logging.getLogger(LOGGER)


@dataclass(frozen=True, slots=True)
class Write:
    """One write request. at: seconds since 1970; what: the body, if it is short JSON."""

    at: float
    caller: str
    address: str
    method: str
    path: str
    query: str
    what: object
    status: int


# Bounds on rejected writes without credentials: entries kept, and log lines in a burst and per second.
_MAX_UNAUTHENTICATED = 100
_LINE_BURST = 10.0
_LINES_PER_SECOND = 0.1
_FIELDS = [item.name for item in fields(Write)]


class Audit:
    """Keeps the last writes, and logs each as one JSON object to `gantry.audit`.

    Writes that were rejected for lack of a credential have a ring of their own and a limit on log lines, so that
    unauthenticated callers cannot evict the entries of others; a line has the number of those that were not logged.
    `clock` gives seconds.
    """

    def __init__(self, kept: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._writes: Ring[Write] = Ring(kept)
        self._unauthenticated: Ring[Write] = Ring(min(kept, _MAX_UNAUTHENTICATED))
        self._clock = clock
        self._lines = TokenBucket(_LINES_PER_SECOND, _LINE_BURST, clock())
        self._unlogged = 0
        # Independent of the level of other loggers.
        _log.setLevel(logging.INFO)

    def newest(self) -> list[Write]:
        """Return the last writes, the newest first."""
        found = [write for ring in (self._unauthenticated, self._writes) for _, write in ring.newest()]
        return sorted(found, key=lambda write: -write.at)

    def record(self, write: Write, unauthenticated: bool = False) -> None:
        """Record a write. unauthenticated: it was rejected for lack of a credential."""
        line = {name: getattr(write, name) for name in _FIELDS}
        if not unauthenticated:
            self._writes.add(write)
        else:
            self._unauthenticated.add(write)
            if self._lines.spend(1, self._clock()):
                self._unlogged += 1
                return
            if self._unlogged:
                line["unlogged"], self._unlogged = self._unlogged, 0
        _log.info("%s", orjson.dumps(line, default=str).decode())

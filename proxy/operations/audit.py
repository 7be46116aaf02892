"""The audit trail: every write that was asked for, done or refused, as a log line and in a ring."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import orjson

from proxy.operations.event_log import Ring
from proxy.traffic_rules.token_buckets import TokenBucket

LOGGER = "gantry.audit"
_log = logging.getLogger(LOGGER)


@dataclass(frozen=True, slots=True)
class Write:
    """One write. at: seconds since 1970; what: the request's body, where it is short and JSON."""

    at: float
    caller: str
    address: str
    method: str
    path: str
    query: str
    what: object
    status: int


# Writes without a credential: how many are kept, and how many are logged at once and per second.
_STRANGERS = 100
_LINES_AT_ONCE = 10.0
_LINES_PER_SECOND = 0.1
_NAMES = [item.name for item in fields(Write)]


class Audit:
    """Keeps the last writes, and logs each as one JSON object to `gantry.audit`.

    Those that were refused for want of a credential are kept apart, and of many of them some are logged, with how many
    were not: whoever may not write shall not make those disappear who did. `clock` gives seconds.
    """

    def __init__(self, kept: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._writes: Ring[Write] = Ring(kept)
        self._strangers: Ring[Write] = Ring(min(kept, _STRANGERS))
        self._clock = clock
        self._lines = TokenBucket(_LINES_PER_SECOND, _LINES_AT_ONCE, clock())
        self._unlogged = 0
        # Whatever else is logged, this is.
        _log.setLevel(logging.INFO)

    def newest(self) -> list[Write]:
        """The last writes, the newest first."""
        found = [write for ring in (self._strangers, self._writes) for _, write in ring.newest()]
        return sorted(found, key=lambda write: -write.at)

    def note(self, write: Write, stranger: bool = False) -> None:
        """A write has been answered; stranger: refused, as nobody knows who asked."""
        line = {name: getattr(write, name) for name in _NAMES}
        if not stranger:
            self._writes.add(write)
        else:
            self._strangers.add(write)
            if self._lines.spend(1, self._clock()):
                self._unlogged += 1
                return
            if self._unlogged:
                line["unlogged"], self._unlogged = self._unlogged, 0
        _log.info("%s", orjson.dumps(line, default=str).decode())

"""The audit trail: every write that was asked for, done or refused, as a log line and in a ring."""

import logging
from dataclasses import dataclass, fields

import orjson

from proxy.admin.recent import Ring

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


_NAMES = [item.name for item in fields(Write)]


class Audit:
    """Keeps the last writes, and logs each as one JSON object to `gantry.audit`."""

    def __init__(self, kept: int) -> None:
        self.writes: Ring[Write] = Ring(kept)
        # Whatever else is logged, this is.
        _log.setLevel(logging.INFO)

    def note(self, write: Write) -> None:
        """A write has been answered."""
        self.writes.add(write)
        _log.info("%s", orjson.dumps({name: getattr(write, name) for name in _NAMES}, default=str).decode())

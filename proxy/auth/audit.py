"""The audit log: denied requests, changes and readings of secrets by tools, as JSON lines of the logger `gantry.audit`.

The admin API logs its writes there, too. `to_file` writes the lines to a file of their own.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import orjson

from proxy.core.principal import Principal
from proxy.observability.metrics.family import Family, Kind, Samples
from proxy.settings.auth import AuthSettings
from proxy.settings.naming import naming

LOGGER = "gantry.audit"
_log = logging.getLogger(LOGGER)

# Lines about denied requests per second. Any client that reaches a port can cause them.
_LINES_PER_SECOND = 50
# Characters of names that clients choose.
_MAX_LENGTH = 128
LOST_LINES = Family(
    "gantry_audit_file_lost_lines",
    Kind.COUNTER,
    "Lines of the audit log that could not be written to `auth.audit`, as on a full disk.",
)


class AuditLog:
    """Logs denied requests and changes. `unlogged`: denied requests beyond the limit per second, by reason."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._lines = 0
        self.unlogged: Counter[str] = Counter()
        # Independent of the level of other loggers.
        _log.setLevel(logging.INFO)

    def denied(self, principal: Principal, protocol: str, address: str, request: str, reason: str) -> None:
        """Log a request that was denied."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
            if self.unlogged:
                _write({"event": "unlogged", "counts": dict(self.unlogged)})
                self.unlogged.clear()
        self._lines += 1
        if self._lines > _LINES_PER_SECOND:
            self.unlogged[reason if principal.failure is not None else "forbidden"] += 1
            return
        self._event("denied", principal, protocol, address, request, reason)

    def changed(self, principal: Principal, protocol: str, address: str, request: str, resources: str) -> None:
        """Log a permitted request that changes topics, groups, users or policies."""
        self._event("changed", principal, protocol, address, request, resources)

    def read(self, principal: Principal, protocol: str, address: str, request: str, resources: str) -> None:
        """Log a permitted request whose response has secrets."""
        self._event("read", principal, protocol, address, request, resources)

    def _event(self, event: str, principal: Principal, protocol: str, address: str, request: str, detail: str) -> None:
        _write(
            {
                "event": event,
                "user": _printable(principal.user[:_MAX_LENGTH]),
                "method": principal.method,
                "protocol": protocol,
                "address": address,
                "request": request,
                "detail": _printable(detail[: 4 * _MAX_LENGTH]),
            }
        )


def _printable(text: str) -> str:
    """Return a text that can be encoded: clients may send halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _write(line: dict[str, object]) -> None:
    _log.info("%s", orjson.dumps({"at": datetime.now(UTC), **line}, option=orjson.OPT_OMIT_MICROSECONDS).decode())


class LostLines:
    """The number of lines that the file of the audit log lacks."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        """Count one line."""
        self._count += 1

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of the lines."""
        yield LOST_LINES, {(): self._count}


@contextmanager
def to_file(settings: AuthSettings, lost: LostLines | None = None) -> Iterator[None]:
    """Write the audit log to the file of the settings, if any; `lost` counts unwritten lines. Raises OSError."""
    path = settings.audit
    if path is None:
        yield
        return
    # Windows, where the commands run, does not have the locks.
    from proxy.auth.audit_file import AuditFile

    with naming("auth.audit"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = AuditFile(path, settings.audit_size, settings.audit_files, (lost or LostLines()).add)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        handler.close()

"""Health reports of a replica, without HTTP.

`/livez`: whether the process works; fails only if a restart would help. `/readyz`: whether the replica accepts clients.
`/healthz`: as `/readyz`, but a draining replica passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import orjson

Status = Literal["pass", "warn", "fail"]


class Aspect(StrEnum):
    """The subject of a check; the values are the names in reports and metrics."""

    LISTENERS = "listeners"
    BACKEND = "backend"
    NAME_SERVERS = "name_servers"
    BROKERS = "brokers"
    CERTIFICATES = "certificates"
    MEMORY = "memory"
    USERS = "users"
    DRAIN = "drain"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `text` is the reason if it does not pass."""

    aspect: Aspect
    status: Status
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one path; warnings count as ok."""

    status: Status
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return self.status != "fail"

    @property
    def http_status(self) -> int:
        return 200 if self.ok else 503

    def json(self) -> bytes:
        """Return the body of the HTTP response."""
        checks = {check.aspect.value: {"status": check.status, "reason": check.text} for check in self.checks}
        return orjson.dumps({"status": self.status, "checks": checks})


RunChecks = Callable[[], Sequence[Check]]
PATHS = ("/healthz", "/readyz", "/livez")


class Health:
    """Reports from the checks of `run_checks`. `forced`: the operator's reason for failing health, or None.

    find_lasting: returns the failures that end only with a restart, for `/livez`.
    """

    def __init__(self, run_checks: RunChecks, find_lasting: RunChecks = tuple) -> None:
        self._run_checks = run_checks
        self._find_lasting = find_lasting
        self.forced: str | None = None

    def report(self, path: str) -> Report:
        """Return the report of one of `PATHS`."""
        if path == "/livez":
            failures = self._find_lasting()
            return Report(_worst(failures), tuple(failures))
        checks = [*self._run_checks(), self._forced()]
        if path == "/healthz":
            checks = [check for check in checks if check.aspect is not Aspect.DRAIN]
        return Report(_worst(checks), tuple(checks))

    def _forced(self) -> Check:
        if self.forced is None:
            return Check(Aspect.FORCED, "pass")
        return Check(Aspect.FORCED, "fail", self.forced)


_ORDER: tuple[Status, ...] = ("pass", "warn", "fail")


def _worst(checks: Sequence[Check]) -> Status:
    return max((check.status for check in checks), key=_ORDER.index, default="pass")

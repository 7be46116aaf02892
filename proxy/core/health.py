"""The replica's health: what is looked at, and what follows from it. No HTTP here.

`/livez`: the process does what it should; it fails only where a restart would help. `/readyz`: send clients here.
`/healthz`: the same, but a replica that drains is healthy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import orjson

Status = Literal["pass", "warn", "fail"]


class Aspect(StrEnum):
    """What is looked at; the values are names in answers and metrics."""

    LISTENERS = "listeners"
    BACKEND = "backend"
    NAME_SERVERS = "name_servers"
    BROKERS = "brokers"
    DRAIN = "drain"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at; `text` is the reason where it does not pass."""

    aspect: Aspect
    status: Status
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to one question about health; ok: warnings are no failure."""

    status: Status
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return self.status != "fail"

    @property
    def http_status(self) -> int:
        return 200 if self.ok else 503

    def json(self) -> bytes:
        """As HTTP answers it."""
        checks = {check.aspect.value: {"status": check.status, "reason": check.text} for check in self.checks}
        return orjson.dumps({"status": self.status, "checks": checks})


Look = Callable[[], Sequence[Check]]
_ALIVE = Report("pass", ())
PATHS = ("/healthz", "/readyz", "/livez")


class Health:
    """Asks `look` for what there is to see; `forced` is the reason why an operator wants it to fail."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.forced: str | None = None

    def report(self, path: str) -> Report:
        """What one of `PATHS` answers."""
        if path == "/livez":
            return _ALIVE
        checks = [*self._look(), self._forced()]
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

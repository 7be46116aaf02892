"""An incident: findings of one cause, for an operator."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Incident:
    """start, end: seconds since 1970; open: it lasts to the end of the records. about: the narrowest common factor, by
    the attributes of findings. affected: requests or messages; clients: those concerned. muted: by the mute file.
    """

    kind: Kind
    severity: str
    start: float
    end: float
    open: bool
    about: Mapping[str, str]
    happened: str
    advice: str
    affected: float
    clients: int
    findings: tuple[Finding, ...]
    muted: str | None = None

    @property
    def score(self) -> float:
        return max(finding.likelihood for finding in self.findings)

    def json(self) -> dict[str, Any]:
        """Return the incident for machines: instants in ISO 8601, UTC."""
        start, end = (datetime.fromtimestamp(time, UTC).isoformat() for time in (self.start, self.end))
        return {
            "kind": self.kind,
            "severity": self.severity,
            "start": start,
            "end": end,
            "open": self.open,
            "about": dict(self.about),
            "happened": self.happened,
            "advice": self.advice,
            "affected": round(self.affected),
            "clients": self.clients,
            "muted": self.muted,
            "evidence": [
                {
                    "kind": each.kind,
                    "about": dict(each.about),
                    "observed": each.observed,
                    "expected": each.expected,
                    "likelihood": round(each.likelihood, 1),
                    **each.facts,
                }
                for each in self.findings
            ],
        }

    def line(self) -> str:
        """Return the incident as one JSON line."""
        return json.dumps(self.json(), ensure_ascii=False)

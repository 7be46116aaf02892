"""Findings of one cause become one incident."""

from collections.abc import Sequence

from analytics.incidents.causes import by_cause
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import KINDS, rank
from analytics.incidents.relations import related
from analytics.incidents.wording import sentences

# Least likelihood of a finding that moves the onset, as a share of the likeliest's.
_SURE = 0.2


def incidents(findings: Sequence[Finding], total: float) -> list[Incident]:
    """Return the incidents of findings, ordered by time. total: requests of the records, for the severity."""
    ordered = sorted(findings, key=lambda finding: (finding.start, rank(finding.kind)))
    parents = list(range(len(ordered)))

    def root(place: int) -> int:
        while parents[place] != place:
            place = parents[place]
        return place

    for place, one in enumerate(ordered):
        for other in range(place):
            if related(one, ordered[other]):
                parents[root(place)] = root(other)
    groups: dict[int, list[Finding]] = {}
    for place, finding in enumerate(ordered):
        groups.setdefault(root(place), []).append(finding)
    return sorted((_incident(group, total) for group in groups.values()), key=lambda each: (each.start, each.kind))


def _incident(findings: list[Finding], total: float) -> Incident:
    causes = by_cause(findings)
    first = causes[0]
    same = [each for each in findings if each.kind == first.kind]
    # A weak finding does not move the onset.
    sure = [each for each in same if each.likelihood >= _SURE * max(one.likelihood for one in same)]
    still = any(each.open for each in same)
    affected = max(each.affected for each in findings)
    about: dict[str, str] = {
        name: value for name, value in first.about.items() if all(each.about.get(name) == value for each in same)
    }
    words = sentences(first)
    return Incident(
        kind=first.kind,
        severity=_severity(first, affected, total, still),
        start=min(each.start for each in sure),
        end=max(each.end for each in same),
        open=still,
        about=about or first.about,
        happened=words.happened + (" It goes on." if still else ""),
        advice=words.advice,
        affected=affected,
        clients=max(each.clients for each in findings),
        findings=tuple(causes),
    )


def _severity(first: Finding, affected: float, total: float, still: bool) -> str:
    """Return a severity by the share of all requests that are affected, and by whether a service stopped."""
    share = affected / max(total, 1.0)
    outage = KINDS[first.kind].outage
    if share >= 0.01 or (outage and (still or share >= 0.001)):
        return "critical"
    return "warning" if share >= 1e-4 or outage or still else "info"

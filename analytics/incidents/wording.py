"""Sentences of incidents: the event, and advice."""

from dataclasses import dataclass

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import KINDS, Kind


@dataclass(frozen=True, slots=True)
class Words:
    """Sentences of one incident: the event, and advice."""

    happened: str
    advice: str


_NAMES = {"sdk": "version", "network": "addresses"}
_ORDER = ("client", "queue", "group", "topic", "broker", "replica", "sdk", "network", "tenant")


def subject(finding: Finding) -> str:
    """Return the subject in words, the narrowest attribute first; a scope without attributes is the whole service."""
    if finding.kind == Kind.BAD_ROLLOUT:
        return f"version {finding.about['version']}"
    scope = finding.facts.get("scope")
    names = scope.split("+") if scope else [name for name in _ORDER if name in finding.about]
    names = [name for name in names if name in finding.about] or list(finding.about)
    if "queue" in names:
        # A queue is one of a broker.
        where = f"queue {finding.about['queue']} of broker {finding.about.get('broker')}"
        rest = [name for name in names if name in ("group", "topic")]
        return ", ".join([where, *(f"{name} {finding.about[name]}" for name in rest)])
    if scope == "":
        return "the whole service"
    return ", ".join(f"{_NAMES.get(name, name)} {finding.about[name]}" for name in names)


def sentences(finding: Finding) -> Words:
    """Return the sentences of an incident that this finding names."""
    spec = KINDS[finding.kind]
    happened = spec.happened.format(
        subject=subject(finding),
        observed=finding.observed,
        expected=finding.expected,
        affected=f"{finding.affected:,.0f}",
        trouble="were slow" if finding.facts.get("symptom") == "slow" else "failed",
        **{name: value for name, value in finding.facts.items() if name != "scope"},
    )
    of_client = spec.client_advice if finding.facts.get("scope") == "client" else ""
    return Words(happened[0].upper() + happened[1:], of_client or spec.advice)

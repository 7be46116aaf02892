"""Comparison of incidents with the planted ones: kind or cause, subject, and onset must be right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from analytics.incidents.incident import Incident
from tests.analytics.field.truth import Planted

# The onset may be this much off, or by a tenth of the incident's length.
ONSET = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Judgement:
    """matches: planted incidents with the incident that names them. near: incidents about a planted one with a wrong
    kind or onset; they count as wrong. false: incidents about nothing.
    """

    matches: list[tuple[Planted, Incident]]
    missed: list[Planted]
    near: list[tuple[Incident, Planted]]
    repeated: list[Incident]
    false: list[Incident]

    @property
    def recall(self) -> float:
        return len(self.matches) / max(len(self.matches) + len(self.missed), 1)

    @property
    def precision(self) -> float:
        """Repetitions of a planted incident count as wrong: one cause is one incident."""
        wrong = len(self.near) + len(self.repeated) + len(self.false)
        return len(self.matches) / max(len(self.matches) + wrong, 1)


def judge(found: Sequence[Incident], planted: Sequence[Planted]) -> Judgement:
    """Assign each incident to at most one planted incident."""
    matches: list[tuple[Planted, Incident]] = []
    near: list[tuple[Incident, Planted]] = []
    repeated: list[Incident] = []
    false: list[Incident] = []
    taken: set[int] = set()
    for incident in sorted(found, key=lambda each: -each.score):
        fitting = [place for place, each in enumerate(planted) if _names(incident, each)]
        exact = [place for place in fitting if _is_exact(incident, planted[place])]
        free = [place for place in exact if place not in taken]
        if free:
            taken.add(free[0])
            matches.append((planted[free[0]], incident))
        elif exact:
            repeated.append(incident)
        elif fitting:
            near.append((incident, planted[fitting[0]]))
        else:
            false.append(incident)
    missed = [each for place, each in enumerate(planted) if place not in taken]
    return Judgement(matches, missed, near, repeated, false)


def _times(incident: Incident) -> tuple[datetime, datetime]:
    start, end = (datetime.fromtimestamp(time, UTC) for time in (incident.start, incident.end))
    return start, end


def _names(incident: Incident, planted: Planted) -> bool:
    """Return whether the incident is about the planted one's subject at its time."""
    start, end = _times(incident)
    slack = timedelta(minutes=20)
    if start > planted.end + slack or end < planted.start - slack:
        return False
    about = {**incident.about, "address": incident.about.get("network", "")}
    common = [name for name in planted.about if about.get(name)]
    return bool(common) and all(about[name] == planted.about[name] for name in common)


def _is_exact(incident: Incident, planted: Planted) -> bool:
    start, _ = _times(incident)
    allowed = max(ONSET, (planted.end - planted.start) / 10)
    return incident.kind in planted.kinds and abs(start - planted.start) <= allowed


def lines(judgement: Judgement) -> Iterator[str]:
    """Return the judgement as lines: missed, wrong and repeated incidents."""
    for each in judgement.missed:
        yield f"MISSED   {_span(each.start, each.end)} {each.kind}: {each.text}"
    for incident, planted in judgement.near:
        meant = f"{planted.kind} of {planted.start:%d %H:%M}"
        yield f"NEAR     {_span(*_times(incident))} {incident.kind} {_subject(incident)} for {meant}"
    for title, some in (("REPEATED", judgement.repeated), ("FALSE", judgement.false)):
        for incident in some:
            yield f"{title:8} {_span(*_times(incident))} {incident.kind} {_subject(incident)} ({incident.score:.0f})"


def _span(start: datetime, end: datetime) -> str:
    return f"{start:%d %H:%M}-{end:%d %H:%M}"


def _subject(incident: Incident) -> str:
    kinds = "+".join(each.kind for each in incident.findings[:5])
    return f"{dict(incident.about)} [{kinds}]"

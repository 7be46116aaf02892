"""`python -m analytics.evaluate DIR`: compare the incidents that are found with those that the generator planted."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from analytics import generator
from analytics.generator.truth import Incident, Truth
from analytics.incidents import incident as detected
from analytics.incidents.kinds import Kind
from analytics.jobs.incidents import find
from analytics.jobs.report import Order
from analytics.record_errors import NoRecords
from analytics.session import session

# Tolerance between a finding and an incident: windows are minutes long, and a backlog takes time to clear.
SLACK = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Finding:
    """The part of a finding that evaluation reads."""

    kind: str
    severity: str
    start: datetime
    end: datetime
    text: str
    about: dict[str, str]


@dataclass(frozen=True, slots=True)
class Decision:
    """Findings compared with incidents.

    found: incidents with the findings of their kind. explained: findings of another kind that an incident accounts for,
    such as the surge caused by a noisy neighbour. false: all other findings.
    """

    found: dict[int, list[Finding]]
    missed: list[Incident]
    explained: list[Finding]
    false: list[Finding]

    @property
    def recall(self) -> float:
        """Return the share of incidents with a finding of their kind."""
        return len(self.found) / (len(self.found) + len(self.missed)) if self.found or self.missed else 1.0

    @property
    def precision(self) -> float:
        """Return the share of findings that an incident accounts for."""
        right = sum(map(len, self.found.values())) + len(self.explained)
        return right / (right + len(self.false)) if right or self.false else 1.0


# The generator's names of attributes, and of kinds; a kind may appear as one of several.
_ABOUT = {
    "tenant": "tenant",
    "topic": "topic",
    "group": "group",
    "broker": "broker",
    "client": "client_id",
    "replica": "replica",
}
_KINDS = {
    "error_burst": {Kind.ERROR_BURST, Kind.BROKER_FAULT, Kind.THROTTLING, Kind.ERROR_GROWTH},
    "latency_spike": {Kind.LATENCY_SPIKE, Kind.LATENCY_GROWTH},
    "dlq_storm": {Kind.DEAD_LETTERS},
    "consumer_stall": {Kind.CONSUMER_STOPPED, Kind.CONSUMER_LAGGING},
    "noisy_neighbour": {Kind.TRAFFIC_SURGE},
    "traffic_drop": {Kind.TRAFFIC_DROP, Kind.SILENCE},
    "redelivery_storm": {Kind.REDELIVERY_STORM},
    "hot_key": {Kind.HOT_KEY, Kind.QUEUE_SKEW},
    "connection_storm": {Kind.CONNECTION_STORM},
}


def findings(found: Sequence[detected.Incident]) -> list[Finding]:
    """Return incidents in the form of the evaluation, ordered by time."""
    return sorted(map(_finding, found), key=lambda finding: (finding.start, finding.kind, finding.text))


def match_findings(found: Sequence[Finding], incidents: Sequence[Incident]) -> Decision:
    """Match findings with incidents. A finding is right if it overlaps an incident, within SLACK, and differs from it
    in no attribute that both have.
    """
    named: dict[int, list[Finding]] = {}
    explained, false = [], []
    for finding in found:
        matching = [incident for incident in incidents if _matches(finding, incident)]
        same = [
            incident for incident in matching if finding.kind in _KINDS[incident.kind] and _shares(finding, incident)
        ]
        if same:
            for incident in same:
                named.setdefault(incident.id, []).append(finding)
        elif matching:
            explained.append(finding)
        else:
            false.append(finding)
    missed = [incident for incident in incidents if incident.id not in named]
    return Decision(named, missed, explained, false)


def _matches(finding: Finding, incident: Incident) -> bool:
    overlap = finding.start < incident.end + SLACK and finding.end > incident.start - SLACK
    return overlap and all(getattr(incident, name) in (None, value) for name, value in finding.about.items())


def _shares(finding: Finding, incident: Incident) -> bool:
    """Return whether both name the same value of an attribute."""
    return any(getattr(incident, name) == value for name, value in finding.about.items())


def _finding(found: detected.Incident) -> Finding:
    start, end = (datetime.fromtimestamp(time, UTC) for time in (found.start, found.end))
    about = {_ABOUT[name]: value for name, value in found.about.items() if name in _ABOUT}
    return Finding(found.kind, found.severity, start, end, found.happened, about)


def report(truth: Truth, verdict: Decision) -> str:
    """Return the result as text."""
    lines = []
    for incident in truth.incidents:
        hits = verdict.found.get(incident.id, [])
        lines.append(
            f"{'found ' if hits else 'MISSED'} {incident.start:%m-%d %H:%M}-{incident.end:%H:%M} "
            f"{incident.kind:17} {incident.text}"
        )
        lines += [f"         {hit.start:%m-%d %H:%M}-{hit.end:%H:%M} {hit.severity:8} {hit.text}" for hit in hits]
    for title, some in (("explained by an incident", verdict.explained), ("FALSE", verdict.false)):
        lines += [
            f"{title}: {each.start:%m-%d %H:%M}-{each.end:%H:%M} {each.kind} {each.severity}: {each.text}"
            for each in some
        ]
    for kind in sorted({incident.kind for incident in truth.incidents}):
        planted = [incident for incident in truth.incidents if incident.kind == kind]
        found = sum(incident.id in verdict.found for incident in planted)
        lines.append(f"{kind:17} {found} of {len(planted)}")
    lines.append(f"recall {verdict.recall:.3f}, precision {verdict.precision:.3f}")
    return "\n".join(lines)


@contextmanager
def _spark(master: str, memory: str) -> Iterator[SparkSession]:
    spark = session("gantry-evaluate", master, memory=memory)
    try:
        yield spark
    finally:
        spark.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analytics.evaluate", description="Judges the detectors.")
    parser.add_argument("dir", type=Path, help="a directory that `python -m analytics.generator` has written")
    parser.add_argument("--master", default="local[*]", help="Spark master (%(default)s)")
    parser.add_argument("--memory", default="2g", help="driver memory (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        truth = generator.load(options.dir)
    except OSError as error:
        parser.error(f"{options.dir} was not generated: {error}")
    try:
        found = find(lambda: _spark(options.master, options.memory), str(options.dir), Order())
    except NoRecords as error:
        parser.error(str(error))
    verdict = match_findings(findings(found.incidents), truth.incidents)
    print(report(truth, verdict))
    return 0


if __name__ == "__main__":
    sys.exit(main())

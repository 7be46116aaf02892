"""`python -m analytics.evaluate DIR`: compare the detectors' findings with the incidents that the generator planted."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import Row, SparkSession

from analytics import generator
from analytics.detect import detect
from analytics.generator.truth import Incident, Truth
from analytics.records import NoRecords, read
from analytics.session import session
from analytics.transforms.findings import ABOUT
from analytics.transforms.rollup import CELL, rollup

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


def findings(spark: SparkSession, root: str) -> list[Finding]:
    """Return all findings of a directory, ordered by time."""
    requests = read(spark, root, "requests").frame
    connections = read(spark, root, "connections").frame
    # Instants as numbers: a collected timestamp is in the time zone of this process.
    cells = rollup(requests, CELL, "5 minutes").persist()
    rows = (
        detect(requests, connections, cells=cells)
        .selectExpr("*", "unix_micros(start) AS start_us", "unix_micros(end) AS end_us")
        .collect()
    )
    cells.unpersist()
    return sorted(map(_finding, rows), key=lambda finding: (finding.start, finding.kind, finding.text))


def match_findings(found: Sequence[Finding], incidents: Sequence[Incident]) -> Decision:
    """Match findings with incidents. A finding is right if it overlaps an incident, within SLACK, and differs from it
    in no attribute that both have.
    """
    named: dict[int, list[Finding]] = {}
    explained, false = [], []
    for finding in found:
        matching = [incident for incident in incidents if _matches(finding, incident)]
        same = [incident for incident in matching if incident.kind == finding.kind and _shares(finding, incident)]
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


def _finding(row: Row) -> Finding:
    start, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (row.start_us, row.end_us))
    about = {name: row[name] for name in ABOUT if row[name] is not None}
    return Finding(row.kind, row.severity, start, end, row.text, about)


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
    spark = session("gantry-evaluate", options.master, memory=options.memory)
    try:
        verdict = match_findings(findings(spark, str(options.dir)), truth.incidents)
    except NoRecords as error:
        parser.error(str(error))
    finally:
        spark.stop()
    print(report(truth, verdict))
    return 0


if __name__ == "__main__":
    sys.exit(main())

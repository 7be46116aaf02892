"""The demonstration: generate records, report on them, evaluate the findings."""

import shutil
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from analytics.evaluate import Finding, match_findings
from analytics.generator import Plan, generate
from analytics.generator import truth as truths
from analytics.jobs.report import Order, report
from analytics.transforms.findings import ABOUT

# Minimum precision; below it users stop reading findings.
_PRECISION = 0.8
# Minimum recall for a week in which every incident is large enough to detect; `analytics.evaluate` measures others.
_SEED = 2


def demo(spark: SparkSession, folder: Path, records: int, days: int) -> int:
    """Generate records, report on them, open the page on a desktop; return 1 if detection misses its minimum."""
    begun = time.monotonic()
    root, out = folder / "records", folder / "report"
    if (root / truths.NAME).exists():
        # A former demonstration's records are used again; any other records are an error.
        shutil.rmtree(root)
    truth = generate(root, Plan(records=records, days=days, seed=_SEED))
    generated = time.monotonic()
    print(f"generated {truth.records['requests']:,} requests of {days} days in {root}, {generated - begun:.0f} s")
    made = report(spark, str(root), str(out), Order(title="Traffic of a demonstration"))
    done = time.monotonic()
    print(f"the report is {made.page}")
    verdict = match_findings(list(findings(made.findings)), truth.incidents)
    for incident in verdict.missed:
        print(f"not found: {incident.kind} {incident.start:%Y-%m-%d %H:%M}-{incident.end:%H:%M}, {incident.text}")
    if sys.stdout.isatty():
        webbrowser.open(Path(made.page).as_uri())
    found = len(truth.incidents) - len(verdict.missed)
    print(
        f"analytics-demo: {made.requests:,} requests, {len(made.findings)} findings in {done - generated:.0f} s;"
        f" {found} of {len(truth.incidents)} planted incidents found, precision {verdict.precision:.2f}"
    )
    return 0 if not verdict.missed and verdict.precision >= _PRECISION else 1


def findings(table: pa.Table) -> Iterator[Finding]:
    """Return a table of findings in the form of the evaluation."""
    for row in table.to_pylist():
        about = {name: row[name] for name in ABOUT if row[name] is not None}
        yield Finding(row["kind"], row["severity"], row["start"], row["end"], row["text"], about)

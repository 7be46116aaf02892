"""The demonstration: generate records, report on them, evaluate the findings."""

import shutil
import sys
import time
import webbrowser
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.evaluate import findings, match_findings
from analytics.generator import Plan, generate
from analytics.generator import truth as truths
from analytics.jobs.report import Order, report

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
    verdict = match_findings(findings(made.incidents), truth.incidents)
    for incident in verdict.missed:
        print(f"not found: {incident.kind} {incident.start:%Y-%m-%d %H:%M}-{incident.end:%H:%M}, {incident.text}")
    if sys.stdout.isatty():
        webbrowser.open(Path(made.page).as_uri())
    found = len(truth.incidents) - len(verdict.missed)
    print(
        f"analytics-demo: {made.requests:,} requests, {len(made.incidents)} incidents;"
        f" {found} of {len(truth.incidents)} planted incidents found, precision {verdict.precision:.2f};"
        f" {done - begun:.0f} s: {generated - begun:.0f} s to generate, {done - generated:.0f} s to report"
    )
    return 0 if not verdict.missed and verdict.precision >= _PRECISION else 1

"""The demonstration: from nothing to a report whose findings are judged."""

import shutil
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from analytics.evaluate import Finding, judge
from analytics.generator import Plan, generate
from analytics.generator import truth as truths
from analytics.jobs.report import Order, report
from analytics.transforms.findings import ABOUT

# If less of what is found is right, nobody will look at findings for long.
_PRECISION = 0.8
# Of a week in which every kind of incident is large enough to be seen; `analytics.evaluate` judges others.
_SEED = 2


def demo(spark: SparkSession, folder: Path, records: int, days: int) -> int:
    """Generate records, report on them, open the page where somebody watches; 1 if the detectors fell short."""
    begun = time.monotonic()
    root, out = folder / "records", folder / "report"
    if (root / truths.NAME).exists():
        # Generated before; records of anybody else stay, and are complained about.
        shutil.rmtree(root)
    truth = generate(root, Plan(records=records, days=days, seed=_SEED))
    generated = time.monotonic()
    print(f"generated {truth.records['requests']:,} requests of {days} days in {root}, {generated - begun:.0f} s")
    made = report(spark, str(root), str(out), Order(title="Traffic of a demonstration"))
    done = time.monotonic()
    print(f"the report is {made.page}")
    verdict = judge(list(findings(made.findings)), truth.incidents)
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
    """A table of findings as evaluation has them."""
    for row in table.to_pylist():
        about = {name: row[name] for name in ABOUT if row[name] is not None}
        yield Finding(row["kind"], row["severity"], row["start"], row["end"], row["text"], about)

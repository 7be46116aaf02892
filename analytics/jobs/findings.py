"""Print findings as lines."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from analytics import records
from analytics.detect import detect
from analytics.jobs.report import Order, within
from analytics.report.sections import clock, rows
from analytics.transforms.rollup import CELL, rollup


@dataclass(frozen=True, slots=True)
class Found:
    """Findings ordered by time, and the files that were not read completely."""

    findings: pa.Table
    skipped: Sequence[records.Skipped]


def find(spark: SparkSession, root: str, order: Order) -> Found:
    """Return the findings of a directory. Raises NoRecords, also if no request lies in the span."""
    requests, connections = (
        records.read(spark, root, name, since=order.since, until=order.until) for name in ("requests", "connections")
    )
    skipped = (*requests.remarks, *connections.remarks)
    if not requests.rows or requests.frame.isEmpty():
        raise records.NoRecords(f"there are no records of requests in {root}{within(order)}", skipped)
    cells = rollup(requests.frame, CELL, "5 minutes").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = detect(requests.frame, connections.frame, order.zone, cells).orderBy("start", "kind", "text").toArrow()
    finally:
        cells.unpersist()
    return Found(found, skipped)


def lines(found: pa.Table, order: Order, *, as_json: bool) -> Iterator[str]:
    """Return findings as text with the zone's clock, or as JSON with instants."""
    if as_json:
        for finding in found.to_pylist():
            yield json.dumps({name: value for name, value in finding.items() if value is not None}, default=_instant)
    else:
        for row in rows(found, order.zone).to_dict("records"):
            span = f"{row['start']:%Y-%m-%d} {clock(row['start'])}-{clock(row['end'])}"
            yield f"{span} {row['severity']:8} {row['kind']:16} {row['text']}"


def _instant(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

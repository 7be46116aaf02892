"""Print findings as lines."""

import json
from collections.abc import Iterator

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from analytics import records
from analytics.detect import detect
from analytics.jobs.report import Order
from analytics.report.sections import rows
from analytics.transforms.rollup import CELL, rollup


def lines(spark: SparkSession, root: str, order: Order, *, as_json: bool) -> Iterator[str]:
    """Return findings ordered by time: as text with the zone's clock, or as JSON with instants. Raises NoRecords."""
    requests = records.read(spark, root, since=order.since, until=order.until).frame
    connections = records.read(spark, root, "connections", since=order.since, until=order.until).frame
    cells = rollup(requests, CELL, "5 minutes").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = detect(requests, connections, order.zone, cells).orderBy("start", "kind", "text").toArrow()
    finally:
        cells.unpersist()
    if as_json:
        for finding in found.to_pylist():
            yield json.dumps({name: value for name, value in finding.items() if value is not None}, default=_instant)
    else:
        for row in rows(found, order.zone).itertuples():
            yield f"{row.start:%Y-%m-%d %H:%M}-{row.end:%H:%M} {row.severity:8} {row.kind:16} {row.text}"


def _instant(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

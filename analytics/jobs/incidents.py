"""Detection as a job: the incidents of a directory of records, as lines of text or JSON.

Files of this machine are summed by DuckDB, if it is installed and they are not too many: it needs no JVM. All other
records, and damaged ones, are read by Spark. Both run the same statements (incidents/tables.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession

from analytics import records
from analytics.incidents import mutes
from analytics.incidents.detection import detect
from analytics.incidents.engines import by_spark
from analytics.incidents.incident import Incident
from analytics.incidents.tables import Tables
from analytics.jobs.local_tables import local_tables
from analytics.jobs.report import Order
from analytics.record_errors import Skipped, no_requests
from analytics.report.sections import clock

Sessions = Callable[[], AbstractContextManager[SparkSession]]


@dataclass(frozen=True, slots=True)
class Found:
    """Incidents ordered by time, and the files that were not read completely."""

    incidents: Sequence[Incident]
    skipped: Sequence[Skipped]


def find(sessions: Sessions, root: str, order: Order) -> Found:
    """Return the incidents of a directory. Raises NoRecords, also if no request lies in the span."""
    local = local_tables(root, order.since, order.until)
    if local is not None:
        made, skipped = local
    else:
        with sessions() as spark:
            made, skipped = _by_spark(spark, root, order)
    return Found(mutes.applied(detect(made), order.mutes), skipped)


def incidents(requests: DataFrame, connections: DataFrame) -> list[Incident]:
    """Return the incidents of frames of records."""
    return detect(by_spark(requests, connections))


def _by_spark(spark: SparkSession, root: str, order: Order) -> tuple[Tables, Sequence[Skipped]]:
    requests, connections = (
        records.read(spark, root, name, since=order.since, until=order.until) for name in ("requests", "connections")
    )
    skipped = (*requests.remarks, *connections.remarks)
    if not requests.rows or requests.frame.isEmpty():
        raise no_requests(root, order.since, order.until, skipped)
    return by_spark(requests.frame, connections.frame), skipped


def lines(found: Sequence[Incident], order: Order, *, as_json: bool) -> Iterator[str]:
    """Return incidents as text with the zone's clock, or as JSON with instants. Muted ones are in the JSON only."""
    zone = ZoneInfo(order.zone)
    for incident in found:
        if as_json:
            yield incident.line()
        elif incident.muted is None:
            start, end = (datetime.fromtimestamp(time, zone) for time in (incident.start, incident.end))
            span = f"{start:%Y-%m-%d} {clock(start)} to {'the end' if incident.open else clock(end)}"
            yield f"{span}  {incident.severity:8} {incident.kind}: {incident.happened}"
            yield f"    {incident.advice}"

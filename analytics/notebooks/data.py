"""Data of a notebook: records from $GANTRY_RECORDS, clocks of $GANTRY_ZONE, Spark at $GANTRY_MASTER."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics import records
from analytics.record_errors import NoRecords, no_requests
from analytics.report.sections import period
from analytics.session import session
from analytics.transforms.periods import zone_name
from analytics.transforms.rollup import CELL, rollup


@dataclass(frozen=True)
class Opened:
    """The tables, with the requests' cached roll-up by CELL every five minutes; start and end of the requests; and a
    period that gives about a hundred points of that span.
    """

    spark: SparkSession
    requests: DataFrame
    connections: DataFrame
    members: DataFrame
    cells: DataFrame
    start: datetime
    end: datetime
    zone: str

    @property
    def every(self) -> str:
        return period(self.start, self.end)

    @property
    def per(self) -> str:
        """The period for an axis label: "hour"."""
        return self.every.removeprefix("1 ")

    def between(self, start: datetime, end: datetime) -> "Opened":
        """Return the same data restricted to a span of aware times."""
        within = (f.col("time") >= f.lit(start)) & (f.col("time") < f.lit(end))
        return Opened(
            self.spark,
            self.requests.where(within),
            self.connections.where(within),
            self.members.where(within),
            self.cells.where(within),
            start,
            end,
            self.zone,
        )


def opened(since: datetime | None = None, until: datetime | None = None) -> Opened:
    """Open the records. Raises NoRecords, also without GANTRY_RECORDS."""
    root = os.environ.get("GANTRY_RECORDS")
    if root is None:
        raise NoRecords("GANTRY_RECORDS names no directory of traffic records")
    # A notebook server may have a session already.
    master = os.environ.get("GANTRY_MASTER", "local[*]")
    spark = SparkSession.getActiveSession() or session("gantry-notebook", master, quiet=True)
    requests, connections, members = (
        records.read(spark, root, name, since=since, until=until).frame
        for name in ("requests", "connections", "members")
    )
    kept = requests.persist(StorageLevel.MEMORY_AND_DISK)
    (span,) = kept.agg(f.min("time").alias("start"), f.max("time").alias("end")).toArrow().to_pylist()
    if span["start"] is None:
        raise no_requests(root, since, until)
    cells = rollup(kept, CELL, "5 minutes").persist(StorageLevel.MEMORY_AND_DISK)
    start, end = (span[name].astimezone(UTC) for name in ("start", "end"))
    return Opened(spark, kept, connections, members, cells, start, end, zone_name(os.environ.get("GANTRY_ZONE", "UTC")))


def around(opened: Opened, found: pd.DataFrame, minutes: int = 20) -> tuple[datetime, datetime]:
    """Return a span of so many minutes around the beginning of the worst incident, or in the middle of the records
    without incidents.
    """
    worst = found.assign(critical=found["severity"] == "critical").sort_values(["critical", "score"], ascending=False)
    middle = opened.start + (opened.end - opened.start) / 2
    if len(worst):
        middle = pd.Timestamp(worst.iloc[0]["start"]).to_pydatetime().astimezone(UTC)
    half = timedelta(minutes=minutes) / 2
    return middle - half, middle + half

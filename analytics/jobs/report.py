"""The batch report: from records to a page and its tables."""

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics import records
from analytics.facts import Facts
from analytics.hadoop_paths import short
from analytics.incidents import mutes
from analytics.incidents.detection import detect
from analytics.incidents.engines import by_spark
from analytics.incidents.incident import Incident
from analytics.incidents.mutes import Mute
from analytics.jobs.local_tables import local_tables
from analytics.jobs.place import Place, place
from analytics.record_errors import Skipped, no_requests
from analytics.report import page
from analytics.report.explorer import explorer
from analytics.report.page import Origin
from analytics.report.sections import POLLS, Section, Traffic, period, sections
from analytics.transforms import latency, rollup
from analytics.transforms.periods import zone_name
from proxy.traffic_rules.model import RuleFile

_log = logging.getLogger("gantry.analytics")

PAGE = "report.html"
# Up to this many requests stay decoded in memory during the report; beyond it, reading columns again costs less.
_KEPT = 20_000_000
# Columns that no section reads are not kept.
_UNUSED = ("schema", "worker", "tls", "date", "hour")


@dataclass(frozen=True)
class Order:
    """Parameters of a report.

    since, until: aware, half open; zone: of days and clocks; rules: traffic rules to try on the records; mutes: known
    incidents.
    """

    title: str = "Traffic"
    since: datetime | None = None
    until: datetime | None = None
    zone: str = "UTC"
    facts: Facts = field(default_factory=Facts)
    rules: RuleFile | None = None
    mutes: Sequence[Mute] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report. page: path or URI; incidents: of the records; skipped: skipped files."""

    page: str
    requests: int
    incidents: Sequence[Incident]
    skipped: Sequence[Skipped]


def report(spark: SparkSession, root: str, out: str, order: Order | None = None) -> Report:
    """Write `out`/report.html and `out`/tables/NAME.parquet. Raises NoRecords, and ValueError for an unknown zone."""
    order = Order() if order is None else order
    zone_name(order.zone)
    found = {
        name: records.read(spark, root, name, since=order.since, until=order.until)
        for name in ("requests", "connections", "members")
    }
    skipped = [each for table in found.values() for each in table.remarks]
    with _traffic(found, root, order) as traffic:
        made = list(sections(traffic))
        tiles = _tiles(traffic)
        data = explorer(traffic.tables, traffic.incidents, order.zone)
    target = place(spark, out)
    _write_tables(target, made)
    origin = Origin(
        order.title,
        traffic.start,
        traffic.end,
        order.zone,
        sum(each.rows for each in found.values()),
        sum(each.files for each in found.values()),
        [(short(each.path), each.reason) for each in skipped],
    )
    target.write(PAGE, page.render(origin, tiles, made, datetime.now(UTC), traffic.incidents, data).encode())
    where = f"{target.uri}/{PAGE}"
    _log.info("%s: %d sections, %d incidents, %d files skipped", where, len(made), len(traffic.incidents), len(skipped))
    return Report(where, found["requests"].rows, traffic.incidents, skipped)


@contextmanager
def _traffic(found: Mapping[str, records.Records], root: str, order: Order) -> Iterator[Traffic]:
    """Cache the data that sections query, for the duration of the report."""
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    requests = found["requests"].frame.drop(*_UNUSED)
    if found["requests"].rows <= _KEPT:
        keep(requests)
    try:
        span = requests.agg(f.min("time").alias("start"), f.max("time").alias("end")).toArrow().to_pylist()[0]
        if span["start"] is None:
            skipped = [each for table in found.values() for each in table.remarks]
            raise no_requests(root, order.since, order.until, skipped)
        start, end = (span[name].astimezone(UTC) for name in ("start", "end"))
        every = "5 minutes" if period(start, end) == "5 minutes" else _step(order.zone, start, end)
        cells = keep(rollup.rollup(requests, rollup.SUBJECT, every))
        clients = rollup.rollup(requests, rollup.CLIENT, "1 hour", latency=False)
        connections = keep(found["connections"].frame)
        # DuckDB needs no second pass of Spark over the records, where it can read them.
        local = local_tables(root, order.since, order.until)
        summed = by_spark(requests, connections) if local is None else local[0]
        incidents = mutes.applied(detect(summed), order.mutes)
        yield Traffic(
            requests,
            connections,
            keep(found["members"].frame),
            cells,
            clients,
            incidents,
            summed,
            start,
            end,
            order.zone,
            order.facts,
            order.rules,
        )
    finally:
        for frame in kept:
            frame.unpersist()


def _step(zone: str, start: datetime, end: datetime) -> str:
    """Return the longest period that divides the zone's days: those of India begin at half past the hour."""
    offsets = [time.astimezone(ZoneInfo(zone)).utcoffset() for time in (start, end)]
    return "1 hour" if all(offset is None or offset.seconds % 3600 == 0 for offset in offsets) else "15 minutes"


def _tiles(traffic: Traffic) -> list[tuple[str, str]]:
    sums = (
        traffic.cells.agg(
            *(f.sum(name).alias(name) for name in ("requests", "errors", "messages")),
            *(f.count_distinct(name).alias(name) for name in ("topic", "group")),
        )
        .toArrow()
        .to_pylist()[0]
    )
    asked = traffic.cells.where(~f.col("code").isin(*POLLS))
    clients = traffic.tables.totals[traffic.tables.totals["dimension"] == "client"]
    p99 = latency.latency(asked, by=(), every=None).select("p99_us").toArrow().to_pylist()[0]
    return [
        ("requests", _short(sums["requests"])),
        ("messages", _short(sums["messages"])),
        ("errors", f"{100 * sums['errors'] / max(sums['requests'], 1):.2f} %"),
        ("p99", _milliseconds(next(iter(p99.values())))),
        ("topics", _short(sums["topic"])),
        ("groups", _short(sums["group"])),
        ("clients", _short(clients["value"].nunique())),
        ("incidents", str(sum(each.muted is None for each in traffic.incidents))),
    ]


def _milliseconds(microseconds: int | None) -> str:
    return "\N{EN DASH}" if microseconds is None or pd.isna(microseconds) else f"{microseconds / 1000:,.1f} ms"


def _short(value: float) -> str:
    for size, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= size:
            return f"{value / unit:.3g} {letter}"
    return f"{value:,.0f}"


def _write_tables(target: Place, made: Sequence[Section]) -> None:
    for section in made:
        for name, table in section.tables.items():
            content = io.BytesIO()
            pq.write_table(table, content, compression="zstd")
            target.write(f"tables/{name}.parquet", content.getvalue())

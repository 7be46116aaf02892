"""Compaction: the records of every hour in one file, for queries over months.

The proxy writes a file a minute, so that a crash loses little; opening thousands of them costs more than reading them.
The result is another directory of the same form; the proxy's own directory and its retention stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analytics.jobs import partitions
from analytics.jobs.partitions import Files, Manifest
from analytics.jobs.place import Place, place
from analytics.record_errors import NoRecords, Skipped
from analytics.schema import TABLES


@dataclass
class Compaction:
    """Result of a compaction: files merged into partitions of rows; kept: unchanged partitions."""

    files: int = 0
    partitions: int = 0
    rows: int = 0
    kept: int = 0
    skipped: tuple[Skipped, ...] = ()


def compact(spark: SparkSession, root: str, out: str) -> Compaction:
    """Update `out` from the records of `root`: the same rows, one file per hour.

    Only hours with new files are written again. Damaged files are skipped and named. Raises NoRecords, and ValueError
    if both are the same directory.
    """
    target = place(spark, out)
    if target.uri == place(spark, root).uri:
        raise ValueError(f"{root} cannot be compacted into itself: name another directory")
    done = Compaction()
    for table in TABLES:
        _compact(spark, root, target, table.name, done)
    if not (done.files or done.kept):
        raise NoRecords(f"there are no files of records in {root}: nothing was compacted")
    return done


def _compact(spark: SparkSession, root: str, target: Place, table: str, done: Compaction) -> None:
    found = partitions.hours(spark, root, table)
    manifest = Manifest(target, table)
    changed = manifest.changed(found)
    done.kept += len(found) - len(changed)
    if changed:
        _compact_hours(spark, root, target, manifest, {name: found[name] for name in changed}, done)
    done.skipped += manifest.damaged(found, f"{root.rstrip('/')}/{table}")


def _compact_hours(
    spark: SparkSession, root: str, target: Place, manifest: Manifest, hours: Mapping[str, Files], done: Compaction
) -> None:
    table, changed = manifest.name, sorted(hours)
    read = partitions.read(spark, root, table, changed)
    staged = partitions.stage(read.frame, target, table, ["date", "hour"], ["time"])
    partitions.promote(target, table, staged)
    manifest.remember(hours, read.remarks)
    written = (
        spark.read.parquet(*(f"{target.uri}/{table}/{name}/{partitions.NAME}" for name in staged)) if staged else None
    )
    done.rows += 0 if written is None else written.agg(f.count(f.lit(1))).toArrow().to_pylist()[0]["count(1)"]
    done.files += sum(map(len, hours.values()))
    done.partitions += len(staged)

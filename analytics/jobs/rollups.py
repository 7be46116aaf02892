"""Stored roll-ups: by the hour, and by the day of a zone; they answer questions about a month in seconds.

Only hours with new files are made again, and the days that contain them; late records update exactly these. A roll-up
has STORED's columns, so transforms that take "traffic" accept it, except those of single clients: of these it has a
sketch, because their number grows without bound.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.hadoop_paths import exists
from analytics.jobs import partitions
from analytics.jobs.partitions import Manifest
from analytics.jobs.place import Place, place
from analytics.record_errors import NoRecords, Skipped
from analytics.transforms.periods import zone_name
from analytics.transforms.rollup import STORED, rollup

_log = logging.getLogger("gantry.analytics")

HOURLY, DAILY = "hourly", "daily"
# Version of the roll-ups' columns. 1, without a file that says so, had a row for each client.
_VERSION = "2"
_PERIODS = {HOURLY: "1 hour", DAILY: "1 day"}


@dataclass(frozen=True, slots=True)
class Rolled:
    """Hours and days made again; kept: hours without new files; skipped: files not read completely, now or before."""

    hours: int
    days: int
    kept: int
    skipped: tuple[Skipped, ...] = ()


def roll(spark: SparkSession, root: str, out: str, zone: str = "UTC") -> Rolled:
    """Update `out`/hourly and `out`/daily from the requests of `root`; safe to repeat and after a crash.

    Days are the zone's; an hour belongs to the day in which it begins. Raises NoRecords, and ValueError for an unknown
    zone or one other than that of the existing days.
    """
    target = place(spark, out)
    _check_zone(target, zone_name(zone))
    _upgrade(spark, target, zone)
    found = partitions.hours(spark, root, "requests")
    if not found:
        raise NoRecords(f"there are no files of requests in {root}: nothing was rolled up")
    manifest = Manifest(target, HOURLY)
    changed = manifest.changed(found)
    if changed:
        read = partitions.read(spark, root, "requests", changed)
        _store(target, HOURLY, read.frame, zone)
        manifest.remember({name: found[name] for name in changed}, read.remarks)
    days = _roll_days(spark, target, manifest, zone)
    damaged = manifest.damaged(found, f"{root.rstrip('/')}/requests")
    return Rolled(len(changed), days, len(found) - len(changed), damaged)


def read(spark: SparkSession, out: str, name: str = DAILY) -> DataFrame:
    """Return a stored roll-up: time, STORED's columns, sums, attempt, latency, and clients, a sketch of their ids.

    Raises NoRecords if there is none, and ValueError for one of a former version.
    """
    base = f"{out.rstrip('/')}/{name}"
    if not exists(spark, base):
        raise NoRecords(f"there are no {name} roll-ups in {out} yet: gantry analytics rollup makes them")
    if place(spark, out).read("_version") is None:
        raise ValueError(f"the roll-ups in {out} are of a former version: gantry analytics rollup converts them")
    return spark.read.parquet(base).drop("date", "hour")


def _store(target: Place, name: str, traffic: DataFrame, zone: str) -> None:
    """Sum records or shorter periods, and replace the partitions in which they lie."""
    rolled = rollup(traffic, STORED, _PERIODS[name], "UTC" if name == HOURLY else zone, clients=True)
    if name == HOURLY:
        dated, by = rolled.withColumns({"date": f.to_date("time"), "hour": f.hour("time")}), ["date", "hour"]
    else:
        dated, by = rolled.withColumn("date", f.to_date(f.from_utc_timestamp("time", zone))), ["date"]
    partitions.promote(target, name, partitions.stage(dated, target, name, by, list(STORED)))


def _upgrade(spark: SparkSession, target: Place, zone: str) -> None:
    """Convert roll-ups of version 1, without the records; safe to repeat, also where some are converted already."""
    if target.read("_version") is not None:
        return
    for name in (HOURLY, DAILY):
        if target.names(name):
            _log.info("%s/%s: converting roll-ups of a former version", target.uri, name)
            stored = spark.read.option("mergeSchema", "true").parquet(f"{target.uri}/{name}")
            _store(target, name, stored.drop("date", "hour"), zone)
    target.write("_version", _VERSION.encode())


def _roll_days(spark: SparkSession, target: Place, hourly: Manifest, zone: str) -> int:
    """Make days again whose hours changed; return their number."""
    made_of: dict[str, dict[str, partitions.Stamp]] = {}
    for hour in hourly:
        local = partitions.begin(hour).astimezone(ZoneInfo(zone))
        made_of.setdefault(f"date={local:%Y-%m-%d}", {})[hour] = _sum(hourly[hour])
    manifest = Manifest(target, DAILY)
    changed = manifest.changed(made_of)
    if not changed:
        return 0
    hours = [hour for day in changed for hour in made_of[day]]
    # An hour without readable rows has no file.
    paths = [f"{HOURLY}/{hour}/{partitions.NAME}" for hour in hours if target.names(f"{HOURLY}/{hour}")]
    if paths:
        frame = spark.read.parquet(*(f"{target.uri}/{path}" for path in paths))
        _store(target, DAILY, frame, zone)
    manifest.remember({day: made_of[day] for day in changed})
    return len(changed)


def _sum(files: partitions.Files) -> partitions.Stamp:
    """Return the number of files and a checksum of them."""
    text = json.dumps(dict(files), sort_keys=True).encode()
    return len(files), int.from_bytes(hashlib.blake2b(text, digest_size=6).digest())


def _check_zone(target: Place, zone: str) -> None:
    known = target.read("_zone")
    if known is None:
        target.write("_zone", zone.encode())
    elif known.decode() != zone:
        raise ValueError(
            f"the days in {target.uri} are those of {known.decode()}: use --zone {known.decode()}, or another --out"
        )

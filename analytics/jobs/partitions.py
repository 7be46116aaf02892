"""Incremental work on partitioned records: find changes since the last run, stage, promote, remember.

Each partition of a result is one file, replaced whole: readers never see a partial or doubled partition on any file
system, and a run that dies is repeated. The sources of a partition are recorded after it is in place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics import records
from analytics.hadoop_paths import exists
from analytics.jobs.place import Place
from analytics.record_errors import Skipped, no_directory

# Name of each source file of a partition, with its size in bytes and its time of modification in ms: a file that is
# replaced by one of the same size is a new one.
Stamp = tuple[int, int]
Files = Mapping[str, Stamp]

_STAGING = "_staging"
# Name of a partition's only file.
NAME = "records.parquet"


class Manifest:
    """The sources of a place's partitions, stored in the place itself.

    Each partition has its files, and of these the ones that were damaged, with the reason.
    """

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self._place = place
        self._made: dict[str, dict[str, Stamp]] = {}
        self._damaged: dict[str, dict[str, str]] = {}
        stored = json.loads(place.read(f"_{name}.json") or b"{}")
        # Manifests of former versions had sizes only; their partitions are made again once.
        for partition, files in stored.get("partitions", {}).items():
            self._made[partition] = {name: (size, modified) for name, (size, modified) in files.items()}
        self._damaged |= stored.get("damaged", {})

    def changed(self, found: Mapping[str, Files]) -> list[str]:
        """Return the partitions to make again: those with a source file that is new to them, or new in its contents.

        A partition whose sources only vanished stays: retention removes records, not results from them. A damaged file
        that vanished has no rows in the result.
        """
        return sorted(name for name, files in found.items() if not files.items() <= self._made.get(name, {}).items())

    def damaged(self, found: Mapping[str, Files], base: str) -> tuple[Skipped, ...]:
        """Return the existing files that were damaged when their partitions were made. base: URI of the table."""
        return tuple(
            Skipped(f"{base}/{partition}/{name}", reason)
            for partition, files in sorted(self._damaged.items())
            for name, reason in sorted(files.items())
            if name in found.get(partition, {})
        )

    def remember(self, made: Mapping[str, Files], skipped: Iterable[Skipped] = ()) -> None:
        """Record that these partitions are in place, and which of their files were damaged."""
        self._made |= {name: dict(files) for name, files in made.items()}
        for partition in made:
            self._damaged.pop(partition, None)
        for each in skipped:
            *_, day, hour, name = unquote(each.path).split("/")
            self._damaged.setdefault(f"{day}/{hour}", {})[name] = each.reason
        content = {"partitions": self._made, "damaged": self._damaged}
        self._place.write(f"_{self.name}.json", json.dumps(content, sort_keys=True).encode())

    def __getitem__(self, name: str) -> Files:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)


def hours(spark: SparkSession, root: str, table: str) -> dict[str, dict[str, Stamp]]:
    """Return the files of each hour of a table by partition (`date=…/hour=…`), without reading rows."""
    base = f"{root.rstrip('/')}/{table}"
    if not exists(spark, root):
        raise no_directory(root)
    if not exists(spark, base):
        return {}
    reader = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").option("recursiveFileLookup", "true")
    found: dict[str, dict[str, Stamp]] = {}
    modified = f.unix_millis("modificationTime").alias("modified")
    for row in reader.load(base).select("path", "length", modified).toArrow().to_pylist():
        *_, day, hour, name = unquote(row["path"]).split("/")
        if day.startswith("date=") and hour.startswith("hour="):
            found.setdefault(f"{day}/{hour}", {})[name] = (row["length"], row["modified"])
    return found


def begin(partition: str) -> datetime:
    """Return the start of an hour's partition."""
    day, hour = (part.partition("=")[2] for part in partition.split("/"))
    return datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC) + timedelta(hours=int(hour))


def read(spark: SparkSession, root: str, table: str, partitions: list[str]) -> records.Records:
    """Return the records of these hours, reading every page; damaged files are skipped whole, and named.

    No directory of another hour is listed.
    """
    return records.read(spark, root, table, thorough=True, partitions=partitions)


def stage(frame: DataFrame, place: Place, folder: str, by: list[str], order: list[str]) -> dict[str, str]:
    """Write a frame beside the result, one file per partition; return the path of each."""
    staging = f"{_STAGING}/{folder}"
    place.remove(staging)
    if "hour" in by:
        # File names as the proxy's writer gives them.
        frame = frame.withColumn("hour", f.format_string("%02d", "hour"))
    whole = frame.repartition(*by).sortWithinPartitions(*by, *order)
    whole.write.partitionBy(*by).option("compression", "zstd").parquet(f"{place.uri}/{staging}")
    return dict(_staged(place, staging, len(by)))


def _staged(place: Place, folder: str, depth: int, partition: str = "") -> Iterable[tuple[str, str]]:
    for name in place.names(f"{folder}/{partition}" if partition else folder):
        inner = f"{partition}/{name}" if partition else name
        if depth and "=" in name:
            yield from _staged(place, folder, depth - 1, inner)
        elif not depth and name.endswith(".parquet") and not name.startswith((".", "_")):
            yield partition, f"{folder}/{inner}"


def promote(place: Place, folder: str, staged: Mapping[str, str]) -> None:
    """Move staged partitions into place, each atomically."""
    for partition, path in sorted(staged.items()):
        place.move(path, f"{folder}/{partition}/{NAME}")
    place.remove(f"{_STAGING}/{folder}")

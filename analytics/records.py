"""Reading traffic records: what is damaged is reported and left out, what is older is completed with nulls.

A writer that crashed leaves half a file, a disk damaged pages, an upgrade files of two schema versions. None of it
may end a job that looks at a month, and none of it may go unnoticed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from analytics.schema import struct, table

# Retention may remove a file while it is read.
_OPTIONS = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}


class NoRecords(Exception):
    """There is nothing to read; the text says what is missing, for whoever named the place."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was left out."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """One table's records.

    frame: the schema's columns in their order, then `date` and `hour`. files, rows: how many are in it (rows before
    the cut to `since` and `until`). versions: rows by schema version.
    """

    frame: DataFrame
    files: int = 0
    rows: int = 0
    skipped: tuple[Skipped, ...] = ()
    versions: Mapping[int, int] = field(default_factory=dict)


def read(
    spark: SparkSession,
    root: str,
    name: str = "requests",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    thorough: bool = False,
) -> Records:
    """The records of a table under `root`, a path or any URI that Hadoop knows, with times in [since, until).

    Every file is asked for its rows and schema version first; one that cannot answer is skipped, with the reason.
    thorough: every page is read and decoded once, so that files with damage further inside are skipped whole; without
    it Spark leaves out the rest of such a file when it comes to it. A table without a directory is empty.
    Raises NoRecords if `root` does not exist, ValueError for an unknown table or a time without a time zone.
    """
    schema = struct(table(name), partitions=True)
    within = _within(since, until)
    if not exists(spark, root):
        raise NoRecords(f"there is no directory {root}: it should hold requests/, connections/ and members/")
    base = f"{root.rstrip('/')}/{name}"
    if not exists(spark, base):
        return Records(spark.createDataFrame([], schema))
    listed = _load(spark, base, schema, [base])
    everything = [_uniform(path) for path in listed.inputFiles()]
    paths = {path for path in everything if _concerned(path, since, until)}
    if not paths:
        return Records(listed.limit(0))
    chosen = listed if len(paths) == len(everything) else _load(spark, base, schema, sorted(paths))
    answers = _answers(chosen, thorough)
    skipped = tuple(
        Skipped(path, reason)
        for path in sorted(paths - answers.keys())
        if (reason := _reason(spark, path, schema)) is not None
    )
    versions: dict[int, int] = {}
    for by_version in answers.values():
        for version, rows in by_version.items():
            versions[version] = versions.get(version, 0) + rows
    good = sorted(paths - {each.path for each in skipped})
    frame = _load(spark, base, schema, good) if skipped and good else chosen if good else listed.limit(0)
    return Records(frame.where(within), len(good), sum(versions.values()), skipped, versions)


def stream(
    spark: SparkSession, root: str, name: str = "requests", *, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The growing table as a stream, the same columns as `read`. options: of Spark's file source, such as
    maxFilesPerTrigger. Raises NoRecords if the table has no directory yet."""
    base = f"{root.rstrip('/')}/{name}"
    if not exists(spark, base):
        raise NoRecords(f"there is no directory {base} yet: let the proxy write there first, or create it")
    reader = spark.readStream.schema(struct(table(name), partitions=True)).options(**_OPTIONS)
    return reader.options(**dict(options or {})).parquet(base)


def exists(spark: SparkSession, path: str) -> bool:
    """If there is such a file or directory, on whatever file system its URI names."""
    place = _place(spark, path)
    return bool(place.getFileSystem(spark._jsc.hadoopConfiguration()).exists(place))


def _length(spark: SparkSession, path: str) -> int:
    place = _place(spark, path)
    return int(place.getFileSystem(spark._jsc.hadoopConfiguration()).getFileStatus(place).getLen())


def _place(spark: SparkSession, path: str) -> Any:
    """Hadoop's Path. A URI that Spark has made is escaped, and is unescaped by URI alone."""
    jvm = spark._jvm
    assert jvm is not None
    return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if "://" in path else path)


def _load(spark: SparkSession, base: str, schema: StructType, paths: list[str]) -> DataFrame:
    return spark.read.schema(schema).options(**_OPTIONS).option("basePath", base).parquet(*paths)


def _within(since: datetime | None, until: datetime | None) -> Column:
    condition = f.lit(True)
    if since is not None:
        condition &= f.col("time") >= f.lit(_aware(since))
    if until is not None:
        condition &= f.col("time") < f.lit(_aware(until))
    return condition


_PARTITION = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")


def _concerned(path: str, since: datetime | None, until: datetime | None) -> bool:
    """If the file's partition may hold rows of the span. A path without one may hold anything."""
    match = _PARTITION.search(path)
    if match is None:
        return True
    begin = datetime.fromisoformat(f"{match[1]}T{match[2]}:00+00:00")
    return (since is None or begin + timedelta(hours=1) > _aware(since)) and (until is None or begin < _aware(until))


def _uniform(path: str) -> str:
    """A file's URI in one form: Spark says file:/x in one place and file:///x in another."""
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _aware(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} names no time zone: add one, such as {time.isoformat()}+00:00")
    return time.astimezone(UTC)


def _answers(frame: DataFrame, thorough: bool) -> dict[str, dict[int, int]]:
    """Rows by schema version of every file that can be read. One with damage in its pages has fewer than its footer
    says, and is left out if all pages are read."""
    columns = [column for column in frame.columns if column not in ("date", "hour")]
    # A checksum over all columns keeps Spark from skipping any.
    decoded = f.bit_xor(f.xxhash64(*columns)) if thorough else f.lit(None)
    path = f.col("_metadata.file_path").alias("path")
    rows = (
        frame.select(path, *columns)
        .groupBy("path", "schema")
        .agg(f.count(f.lit(1)).alias("rows"), decoded.alias("decoded"))
        .collect()
    )
    answers: dict[str, dict[int, int]] = {}
    for row in rows:
        answers.setdefault(_uniform(row.path), {})[row.schema or 0] = row.rows
    if not thorough:
        return answers
    # Without any column Spark counts by the footers alone.
    footers = frame.select(path).groupBy("path").count().collect()
    whole = {_uniform(row.path): row["count"] for row in footers}
    return {path: rows for path, rows in answers.items() if sum(rows.values()) == whole.get(path)}


def _reason(spark: SparkSession, path: str, schema: StructType) -> str | None:
    """Why a file cannot be read; None if it can, and has no rows."""
    columns = [column for column in schema.fieldNames() if column not in ("date", "hour")]
    reader = spark.read.schema(schema).option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    try:
        reader.parquet(path).agg(f.bit_xor(f.xxhash64(*columns))).collect()
    except (Py4JError, PySparkException) as error:
        return _sentence(error)
    # Spark passes over a file without a byte.
    return "it is empty" if _length(spark, path) == 0 else None


_KNOWN = {
    "is not a Parquet file": "it is no Parquet file, or only the beginning of one",
    "is too small": "it is no Parquet file, or only the beginning of one",
    "FileNotFoundException": "it has gone meanwhile",
    "PATH_NOT_FOUND": "it has gone meanwhile",
    "CRC": "a page's checksum is wrong",
    "corrupt": "its contents are damaged",
}


def _sentence(error: Exception) -> str:
    text = str(error)
    for sign, sentence in _KNOWN.items():
        if sign in text:
            return sentence
    return "it cannot be decoded: " + text.strip().splitlines()[0]


def short(path: str) -> str:
    """The end of a path, from the table on, for messages."""
    parts = PurePosixPath(unquote(urlsplit(path).path)).parts
    return "/".join(parts[-4:])

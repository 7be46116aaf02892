"""Read traffic records: report and skip damaged files, fill columns of older schema versions with nulls.

A crashed writer leaves half a file, a failing disk leaves damaged pages, an upgrade leaves files of two schema
versions. None of these ends a job over a month of records, and each is reported.
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
    """Raised if there is nothing to read; the text names the missing place."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped file, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one table.

    frame: the schema's columns in order, then `date` and `hour`. files, rows: their number (rows before the cut to
    `since` and `until`). versions: rows by schema version.
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
    """Return the records of a table under `root`, a path or any Hadoop URI, with times in [since, until).

    Every file is asked for its rows and schema version first; a file that cannot answer is skipped, with the reason.
    thorough: read and decode every page once, so that files with damage further inside are skipped whole; otherwise
    Spark drops the rest of such a file when it reaches the damage. A table without a directory is empty. Raises
    NoRecords if `root` does not exist, ValueError for an unknown table or a time without a time zone.
    """
    schema = struct(table(name), partitions=True)
    within = _within(since, until)
    if not exists(spark, root):
        raise NoRecords(f"there is no directory {root}: it should hold requests/, connections/ and members/")
    base = f"{root.rstrip('/')}/{name}"
    if not exists(spark, base):
        return Records(spark.createDataFrame([], schema))
    listed = _load(spark, base, schema, [base])
    everything = [_normalized(path) for path in listed.inputFiles()]
    paths = {path for path in everything if _overlaps_span(path, since, until)}
    if not paths:
        return Records(listed.limit(0))
    chosen = listed if len(paths) == len(everything) else _load(spark, base, schema, sorted(paths))
    answers = _row_counts(chosen, thorough)
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
    """Return the growing table as a stream with the columns of `read`.

    options: of Spark's file source, such as maxFilesPerTrigger. Raises NoRecords if the table has no directory yet.
    """
    base = f"{root.rstrip('/')}/{name}"
    if not exists(spark, base):
        raise NoRecords(f"there is no directory {base} yet: let the proxy write there first, or create it")
    reader = spark.readStream.schema(struct(table(name), partitions=True)).options(**_OPTIONS)
    return reader.options(**dict(options or {})).parquet(base)


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file or directory exists, on the file system that its URI names."""
    place = _place(spark, path)
    return bool(place.getFileSystem(spark._jsc.hadoopConfiguration()).exists(place))


def _length(spark: SparkSession, path: str) -> int:
    place = _place(spark, path)
    return int(place.getFileSystem(spark._jsc.hadoopConfiguration()).getFileStatus(place).getLen())


def _place(spark: SparkSession, path: str) -> Any:
    """Return Hadoop's Path. Only java.net.URI decodes the escapes of a URI that Spark made."""
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


def _overlaps_span(path: str, since: datetime | None, until: datetime | None) -> bool:
    """Return whether the file's partition may hold rows of the span. A path without a partition may hold any."""
    match = _PARTITION.search(path)
    if match is None:
        return True
    begin = datetime.fromisoformat(f"{match[1]}T{match[2]}:00+00:00")
    return (since is None or begin + timedelta(hours=1) > _aware(since)) and (until is None or begin < _aware(until))


def _normalized(path: str) -> str:
    """Return a file's URI in one form: Spark writes both file:/x and file:///x."""
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _aware(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} names no time zone: add one, such as {time.isoformat()}+00:00")
    return time.astimezone(UTC)


def _row_counts(frame: DataFrame, thorough: bool) -> dict[str, dict[int, int]]:
    """Count rows by schema version for every readable file.

    A file with damaged pages has fewer rows than its footer declares; it is left out if all pages are read.
    """
    columns = [column for column in frame.columns if column not in ("date", "hour")]
    # A checksum over all columns keeps Spark from skipping any column.
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
        answers.setdefault(_normalized(row.path), {})[row.schema or 0] = row.rows
    if not thorough:
        return answers
    # Without columns Spark counts rows from the footers.
    footers = frame.select(path).groupBy("path").count().collect()
    whole = {_normalized(row.path): row["count"] for row in footers}
    return {path: rows for path, rows in answers.items() if sum(rows.values()) == whole.get(path)}


def _reason(spark: SparkSession, path: str, schema: StructType) -> str | None:
    """Return why a file cannot be read; None if it is readable and empty."""
    columns = [column for column in schema.fieldNames() if column not in ("date", "hour")]
    reader = spark.read.schema(schema).option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    try:
        reader.parquet(path).agg(f.bit_xor(f.xxhash64(*columns))).collect()
    except (Py4JError, PySparkException) as error:
        return _sentence(error)
    # Spark skips empty files.
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
    """Return the end of a path, from the table name on, for messages."""
    parts = PurePosixPath(unquote(urlsplit(path).path)).parts
    return "/".join(parts[-4:])

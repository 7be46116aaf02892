"""Read traffic records: report and skip damaged files, fill columns of older schema versions with nulls.

A crashed writer leaves half a file, a failing disk leaves damaged pages, an upgrade leaves files of two schema
versions. None of these ends a job over a month of records, and each is reported.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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

from analytics.local_counts import FileCounts, local_counts
from analytics.schema import struct, table

# Retention may remove a file while it is read.
_OPTIONS = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
# Spark takes a network's failure for damage, too: a file that was read whole before is not left out for it.
_STRICT = {**_OPTIONS, "ignoreCorruptFiles": "false"}


class NoRecords(Exception):
    """Raised if there is nothing to read; the text names the missing place. skipped: files that were not read."""

    def __init__(self, sentence: str, skipped: "Sequence[Skipped]" = ()) -> None:
        super().__init__(sentence)
        self.skipped = tuple(skipped)


def no_directory(root: str) -> NoRecords:
    """Return the error for a place of records that does not exist."""
    return NoRecords(f"there is no directory {root}: it should hold requests/, connections/ and members/")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped file, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one table.

    frame: the schema's columns in order, then `date` and `hour`. files, rows: their number (rows before the cut to
    `since` and `until`). versions: rows by schema version. strays: files with rows of another hour than their
    directory's; only these rows are left out, so that no job counts them in a partition that is not theirs.
    """

    frame: DataFrame
    files: int = 0
    rows: int = 0
    skipped: tuple[Skipped, ...] = ()
    versions: Mapping[int, int] = field(default_factory=dict)
    strays: tuple[Skipped, ...] = ()

    @property
    def remarks(self) -> tuple[Skipped, ...]:
        """Return the files that were not read completely."""
        return (*self.skipped, *self.strays)


def read(
    spark: SparkSession,
    root: str,
    name: str = "requests",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    thorough: bool = False,
    partitions: Sequence[str] | None = None,
) -> Records:
    """Return the records of a table under `root`, a path or any Hadoop URI, with times in [since, until).

    partitions: list and read the files of these only (`date=…/hour=…`); a partition without a directory is empty.

    Every file is asked for its rows and schema version first; a file that cannot answer is skipped, with the reason.
    thorough: read and decode every page once, so that files with damage further inside are skipped whole, and a job
    fails that cannot read a file afterwards; otherwise Spark drops the rest of such a file when it reaches the damage.
    A table without a directory is empty. Raises NoRecords if `root` does not exist, ValueError for an unknown table or
    a time without a time zone.
    """
    schema = struct(table(name), partitions=True)
    within = _within(since, until)
    if not exists(spark, root):
        raise no_directory(root)
    base = f"{root.rstrip('/')}/{name}"
    if not exists(spark, base):
        return Records(spark.createDataFrame([], schema))
    folders = [base] if partitions is None else [f"{base}/{each}" for each in partitions]
    folders = folders if partitions is None else [folder for folder in folders if exists(spark, folder)]
    if not folders:
        return Records(spark.createDataFrame([], schema))
    listed = _load(spark, base, schema, folders)
    everything = [_normalized(path) for path in listed.inputFiles()]
    paths = {path for path in everything if overlaps_span(path, since, until)}
    if not paths:
        return Records(listed.limit(0))
    chosen = listed if len(paths) == len(everything) else _load(spark, base, schema, sorted(paths))
    # Only Spark decodes every column as the jobs do.
    answers = {} if thorough else local_counts((path, partition_begin(path)) for path in sorted(paths))
    rest = sorted(paths - answers.keys())
    if rest:
        answers |= _row_counts(_load(spark, base, schema, rest) if answers else chosen, thorough)
    skipped = tuple(
        Skipped(path, reason)
        for path in sorted(paths - answers.keys())
        if (reason := _reason(spark, path, schema)) is not None
    )
    strays = tuple(
        Skipped(path, f"{counts.strays:,} of its {counts.rows:,} rows lie in another hour than its directory's")
        for path, counts in sorted(answers.items())
        if counts.strays
    )
    versions = sum((counts.versions for counts in answers.values()), Counter())
    good = sorted(paths - {each.path for each in skipped})
    if not good:
        frame = listed.limit(0)
    elif thorough:
        # Listing directories costs less than asking for each file; a file that came meanwhile may have strays.
        frame = _load(spark, base, schema, folders if len(good) == len(everything) else good, _STRICT)
    else:
        frame = _load(spark, base, schema, good) if skipped else chosen
    if strays or thorough:
        frame = frame.where(~_is_stray())
    return Records(frame.where(within), len(good), versions.total(), skipped, dict(versions), strays)


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


def _load(
    spark: SparkSession, base: str, schema: StructType, paths: list[str], options: Mapping[str, str] = _OPTIONS
) -> DataFrame:
    return spark.read.schema(schema).options(**options).option("basePath", base).parquet(*paths)


def _within(since: datetime | None, until: datetime | None) -> Column:
    condition = f.lit(True)
    if since is not None:
        condition &= f.col("time") >= f.lit(_aware(since))
    if until is not None:
        condition &= f.col("time") < f.lit(_aware(until))
    return condition


_PARTITION = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")


def overlaps_span(path: str, since: datetime | None, until: datetime | None) -> bool:
    """Return whether the file's partition may hold rows of the span. A path without a partition may hold any."""
    begin = partition_begin(path)
    if begin is None:
        return True
    return (since is None or begin + timedelta(hours=1) > _aware(since)) and (until is None or begin < _aware(until))


def partition_begin(path: str) -> datetime | None:
    """Return the hour of the file's directory; None for a path without a partition."""
    match = _PARTITION.search(path)
    return None if match is None else datetime.fromisoformat(f"{match[1]}T{match[2]}:00+00:00")


def _normalized(path: str) -> str:
    """Return a file's URI in one form: Spark writes both file:/x and file:///x."""
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _aware(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} names no time zone: add one, such as {time.isoformat()}+00:00")
    return time.astimezone(UTC)


def _is_stray() -> Column:
    """Return whether a row lies in another hour than its directory's. Without partition columns none is."""
    in_place = (f.to_date("time") == f.col("date")) & (f.hour("time") == f.col("hour"))
    return f.col("date").isNotNull() & f.col("hour").isNotNull() & ~f.coalesce(in_place, f.lit(False))


def _row_counts(frame: DataFrame, thorough: bool) -> dict[str, FileCounts]:
    """Count rows for every readable file.

    A file with damaged pages has fewer rows than its footer declares; it is left out if all pages are read.
    """
    columns = [column for column in frame.columns if column not in ("date", "hour")]
    # A checksum over all columns keeps Spark from skipping any column.
    decoded = f.bit_xor(f.xxhash64(*columns)) if thorough else f.lit(None)
    path = f.col("_metadata.file_path").alias("path")
    rows = (
        frame.select(path, *frame.columns)
        .groupBy("path", "schema")
        .agg(f.count(f.lit(1)).alias("rows"), f.count_if(_is_stray()).alias("strays"), decoded.alias("decoded"))
        .collect()
    )
    answers: dict[str, FileCounts] = {}
    for row in rows:
        counts = answers.setdefault(_normalized(row.path), FileCounts())
        counts.versions[row.schema or 0] += row.rows - row.strays
        counts.strays += row.strays
    if not thorough:
        return answers
    # Without columns Spark counts rows from the footers.
    footers = frame.select(path).groupBy("path").count().collect()
    whole = {_normalized(row.path): row["count"] for row in footers}
    return {path: counts for path, counts in answers.items() if counts.rows == whole.get(path)}


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
    "SchemaColumnConvert": "a column has another type than the schema",
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH": "a column has another type than the schema",
    "Permission denied": "it may not be read: permission denied",
}
# Spark's names of a fault that carries its own text further inside.
_WRAPPERS = ("An error occurred while calling", "FAILED_READ_FILE", "Job aborted", "Traceback", "JVM stacktrace")


def _sentence(error: Exception) -> str:
    text = str(error)
    for sign, sentence in _KNOWN.items():
        if sign in text:
            return sentence
    return f"it cannot be decoded: {cause(error)}"


def cause(error: BaseException) -> str:
    """Return the innermost cause of an error of Spark or its JVM as one line, without a stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    meant = [line for line in lines if line and not line.startswith(("at ", *_WRAPPERS)) and "SQLSTATE" not in line]
    text = (causes or meant or [type(error).__name__])[-1 if causes else 0]
    # "org.example.SomeException: text" is the text.
    named = re.fullmatch(r"(?:[\w$]+\.)+[\w$]+(?:Exception|Error): (.+)", text)
    return named[1] if named else text


def short(path: str) -> str:
    """Return the end of a path, from the table name on, for messages."""
    parts = PurePosixPath(unquote(urlsplit(path).path)).parts
    return "/".join(parts[-4:])

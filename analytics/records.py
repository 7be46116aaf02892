"""Read traffic records: report and skip damaged files, fill columns of older schema versions with nulls.

A crashed writer leaves half a file, a failing disk leaves damaged pages, an upgrade leaves files of two schema
versions. None of these ends a job over a month of records, and each is reported.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from analytics.hadoop_paths import exists, length, normalized
from analytics.local_counts import FileCounts, local_counts
from analytics.record_errors import NoRecords, Skipped, no_directory, sentence
from analytics.schema import struct, table

# Retention may remove a file while it is read.
_OPTIONS = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
# Spark takes a network's failure for damage, too: a file that was read whole before is not left out for it.
_STRICT = {**_OPTIONS, "ignoreCorruptFiles": "false"}


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
    folders = _folders(spark, base, partitions)
    if not folders:
        return Records(spark.createDataFrame([], schema))
    listed = _load(spark, base, schema, folders)
    everything = [normalized(path) for path in listed.inputFiles()]
    paths = {path for path in everything if overlaps_span(path, since, until)}
    if not paths:
        return Records(listed.limit(0))
    chosen = listed if len(paths) == len(everything) else _load(spark, base, schema, sorted(paths))
    answers = _answers(spark, base, schema, paths, chosen, thorough)
    skipped = tuple(
        Skipped(path, reason)
        for path in sorted(paths - answers.keys())
        if (reason := _reason(spark, path, schema)) is not None
    )
    strays = _strays(answers)
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
    versions = sum((counts.versions for counts in answers.values()), Counter())
    return Records(frame.where(within), len(good), versions.total(), skipped, dict(versions), strays)


def _folders(spark: SparkSession, base: str, partitions: Sequence[str] | None) -> list[str]:
    """Return the directories of a table, or of these partitions of it, that exist."""
    folders = [base] if partitions is None else [f"{base}/{each}" for each in partitions]
    return [folder for folder in folders if exists(spark, folder)] if exists(spark, base) else []


def _answers(
    spark: SparkSession, base: str, schema: StructType, paths: set[str], chosen: DataFrame, thorough: bool
) -> dict[str, FileCounts]:
    """Return the counts of every readable file. chosen: the frame of all paths."""
    # Only Spark decodes every column as the jobs do.
    answers = {} if thorough else local_counts((path, partition_begin(path)) for path in sorted(paths))
    rest = sorted(paths - answers.keys())
    if rest:
        answers |= _row_counts(_load(spark, base, schema, rest) if answers else chosen, thorough)
    return answers


def _strays(answers: Mapping[str, FileCounts]) -> tuple[Skipped, ...]:
    """Return the files with rows that are left out."""
    return tuple(
        Skipped(path, f"{counts.strays:,} of its {counts.rows:,} rows lie in another hour than its directory's")
        for path, counts in sorted(answers.items())
        if counts.strays
    )


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
        counts = answers.setdefault(normalized(row.path), FileCounts())
        counts.versions[row.schema or 0] += row.rows - row.strays
        counts.strays += row.strays
    if not thorough:
        return answers
    # Without columns Spark counts rows from the footers.
    footers = frame.select(path).groupBy("path").count().collect()
    whole = {normalized(row.path): row["count"] for row in footers}
    return {path: counts for path, counts in answers.items() if counts.rows == whole.get(path)}


def _reason(spark: SparkSession, path: str, schema: StructType) -> str | None:
    """Return why a file cannot be read; None if it is readable and empty."""
    columns = [column for column in schema.fieldNames() if column not in ("date", "hour")]
    reader = spark.read.schema(schema).option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    try:
        reader.parquet(path).agg(f.bit_xor(f.xxhash64(*columns))).collect()
    except (Py4JError, PySparkException) as error:
        return sentence(error)
    # Spark skips empty files.
    return "it is empty" if length(spark, path) == 0 else None

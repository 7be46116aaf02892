"""Findings: the common form of all detectors' results, for reports and alerts."""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

# Attributes of a finding; null where one does not apply.
ABOUT = ("tenant", "topic", "group", "broker", "client_id", "replica")

SCHEMA = t.StructType(
    [
        t.StructField("kind", t.StringType()),
        t.StructField("severity", t.StringType()),
        t.StructField("start", t.TimestampType()),
        t.StructField("end", t.TimestampType()),
        t.StructField("subject", t.StringType()),
        *(t.StructField(name, t.StringType()) for name in ABOUT),
        t.StructField("observed", t.DoubleType()),
        t.StructField("expected", t.DoubleType()),
        t.StructField("score", t.DoubleType()),
        t.StructField("text", t.StringType()),
    ]
)

SEVERITIES = ("info", "warning", "critical")


def finding(episodes: DataFrame, kind: Column | str, severity: Column, subject: Column, text: Column) -> DataFrame:
    """Return episodes in the common form. They contain start, end, observed, expected, score, and the applicable
    columns of ABOUT.
    """
    about = [f.col(name) if name in episodes.columns else f.lit(None) for name in ABOUT]
    values = [
        f.lit(kind) if isinstance(kind, str) else kind,
        severity,
        f.col("start"),
        f.col("end"),
        subject,
        *about,
        f.col("observed"),
        f.col("expected"),
        f.col("score"),
        text,
    ]
    columns = zip(values, SCHEMA.fields, strict=True)
    return episodes.select(*(column.cast(field.dataType).alias(field.name) for column, field in columns))


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """Concatenate findings. Raises ValueError for an empty sequence."""
    every = list(frames)
    if not every:
        raise ValueError("there are no findings to put together")
    return reduce(DataFrame.unionByName, every)


def severity_by(measure: Column, warning: float, critical: float) -> Column:
    """Return a severity by a measure."""
    return f.when(measure >= critical, "critical").when(measure >= warning, "warning").otherwise("info")

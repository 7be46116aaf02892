"""Episodes: consecutive windows with the same fault, merged."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.periods import seconds


def episodes(
    windows: DataFrame, keys: Sequence[str], every: str, measures: Sequence[Column], gap: int = 1
) -> DataFrame:
    """Merge windows (column `time`, each `every` long) of the same keys into one row, across up to `gap` missing
    windows.

    Columns: *keys, start, end, *measures (aggregates over the episode's windows).
    """
    length = seconds(every)
    ordered = Window.partitionBy(*keys).orderBy("time")
    apart = f.unix_seconds("time") - f.unix_seconds(f.lag("time").over(ordered))
    begins = f.when(apart <= (gap + 1) * length, 0).otherwise(1)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = windows.withColumn("begins", begins).withColumn("episode", f.sum("begins").over(so_far))
    end = f.timestamp_seconds(f.unix_seconds(f.max("time")) + length)
    return (
        numbered.groupBy(*keys, "episode")
        .agg(f.min("time").alias("start"), end.alias("end"), *measures)
        .drop("episode")
    )


def without_overlaps(found: Sequence[DataFrame], keys: Sequence[str]) -> DataFrame:
    """Concatenate episodes of several frames, except those that overlap one of the same keys in an earlier frame."""
    frames = (frame.withColumn("place", f.lit(place)) for place, frame in enumerate(found))
    together = reduce(DataFrame.unionByName, frames)
    # A window function, not a join, which would compute the episodes again. There are few.
    episode = f.struct("place", "start", "end")
    others = together.withColumn("others", f.collect_list(episode).over(Window.partitionBy(*keys)))
    told = f.exists(
        "others",
        lambda other: (
            (other["place"] < f.col("place")) & (other["start"] < f.col("end")) & (other["end"] > f.col("start"))
        ),
    )
    return others.where(~told).drop("place", "others")

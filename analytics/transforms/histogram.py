"""Latency as a histogram with logarithmic buckets: mergeable by adding counts, quantiles within 2 %.

The buckets are those of DDSketch (Masson, Rim, Lee: DDSketch, VLDB 2019). Unlike a sampling sketch the result does
not depend on the order in which parts are merged, and any tool can read the Parquet files.
"""

import math

from pyspark.sql import Column
from pyspark.sql import functions as f

ACCURACY = 0.02
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_LOG = math.log(_GAMMA)

TYPE = "array<struct<bucket:int,count:double>>"


def bucket(microseconds: Column) -> Column:
    """Return the bucket's number; values below 1 µs count as 1 µs; null has none."""
    return f.ceil(f.log(f.greatest(microseconds, f.lit(1.0))) / _LOG).cast("int")


def value(number: Column) -> Column:
    """Return the value in µs that represents a bucket, at most 2 % from every value in it."""
    return f.pow(f.lit(_GAMMA), number) * (2 / (_GAMMA + 1))


def collected(number: str, count: str) -> Column:
    """Aggregate rows of one bucket each into a histogram; rows without a bucket are left out."""
    entry = f.struct(f.col(number).alias("bucket"), f.col(count).alias("count"))
    return f.sort_array(f.collect_list(f.when(f.col(number).isNotNull(), entry)))


def total(histogram: Column) -> Column:
    """Return the number of values."""
    return f.aggregate(histogram, f.lit(0.0), lambda so_far, entry: so_far + entry["count"])


def above(histogram: Column, microseconds: Column) -> Column:
    """Return the number of values above a bound, to the accuracy of a bucket."""
    limit = bucket(microseconds)
    return total(f.filter(histogram, lambda entry: entry["bucket"] > limit))


def quantile(histogram: Column, share: float) -> Column:
    """Return the value in µs below which the given share lies; null for an empty histogram."""
    start = f.struct(f.lit(0.0).alias("seen"), f.lit(None).cast("int").alias("bucket"))

    def found(rank: Column) -> Column:
        def step(so_far: Column, entry: Column) -> Column:
            seen = so_far["seen"] + entry["count"]
            bucket = f.when(so_far["bucket"].isNull() & (seen >= rank), entry["bucket"]).otherwise(so_far["bucket"])
            return f.struct(seen.alias("seen"), bucket.alias("bucket"))

        return f.aggregate(histogram, start, step, lambda end: value(end["bucket"]))

    # The rank is bound by its own lambda: inside the other it would be computed again for every bucket.
    return f.transform(f.array(total(histogram) * share), found)[0]


def percentile(histogram: Column, percent: float) -> Column:
    """Return a quantile as whole µs, by its common name: percentile(h, 99)."""
    return f.round(quantile(histogram, percent / 100)).cast("long")

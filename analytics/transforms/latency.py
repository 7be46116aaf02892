"""Latency: mergeable percentiles, and spikes."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.periods import named
from analytics.transforms.rollup import rollup, whole

PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9}


def latency(
    traffic: DataFrame,
    by: Sequence[str] = ("code", "topic", "broker"),
    every: str | None = "5 minutes",
    zone: str = "UTC",
) -> DataFrame:
    """Return percentiles of the response time, in µs and within 2 %, by the columns `by`; `latency` is the mergeable
    histogram.

    A receive's time includes waiting for messages: group by code.

    Columns: [time], *by, requests, p50_us, p90_us, p99_us, p999_us, latency.
    """
    percentiles = [histogram.percentile(f.col("latency"), percent).alias(name) for name, percent in PERCENTILES.items()]
    return rollup(traffic, by, every, zone).select(*named(every), *by, whole("requests"), *percentiles, "latency")

"""Errors: their kinds, their rates, and bursts of them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms.periods import named
from analytics.transforms.responses import meaning
from analytics.transforms.rollup import require, rollup, whole


def errors(traffic: DataFrame, every: str | None = "1 hour", zone: str = "UTC") -> DataFrame:
    """Return failed requests by response code. traffic: records, or a roll-up with protocol, code, topic and response.

    Columns: [time], protocol, code, topic, response, meaning, requests.
    """
    by = ["protocol", "code", "topic", "response"]
    require(traffic, *by)
    failed = rollup(traffic, by, every, zone, latency=False).where(f.col("errors") > 0)
    requests = f.round("errors").cast("long").alias("requests")
    return failed.select(*named(every), *by, meaning(f.col("response")).alias("meaning"), requests)


def rates(
    traffic: DataFrame, by: Sequence[str] = ("topic",), every: str | None = "5 minutes", zone: str = "UTC"
) -> DataFrame:
    """Columns: [time], *by, requests, errors, error_rate."""
    sums = rollup(traffic, by, every, zone, latency=False)
    rate = (f.col("errors") / f.col("requests")).alias("error_rate")
    return sums.select(*named(every), *by, whole("requests"), whole("errors"), rate)

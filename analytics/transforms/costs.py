"""Costs: the price of each tenant's usage."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.facts import Prices
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import measures, require, whole
from analytics.transforms.tenants import owner


def costs(traffic: DataFrame, prices: Prices | None = None, every: str | None = None, zone: str = "UTC") -> DataFrame:
    """Return each tenant's usage, its price, and its share of the total.

    broker_s: seconds of broker time spent on its requests. traffic: records, or a roll-up with topic and group.

    Columns: [time], tenant, requests, messages, bytes_in, bytes_out, broker_s, cost, share.
    """
    require(traffic, "topic", "group")
    price = prices or Prices()
    columns = [*named(every), "tenant"]
    used = traffic.select(*keys(every, zone), owner().alias("tenant"), *measures(traffic))
    sums = used.groupBy(*columns).agg(*(f.sum(name).alias(name) for name in _USED))
    cost = (
        f.col("requests") / 1e6 * price.million_requests
        + f.col("messages") / 1e6 * price.million_messages
        + f.col("bytes_in") / 1e9 * price.gigabyte_in
        + f.col("bytes_out") / 1e9 * price.gigabyte_out
        + f.col("broker_us") / 3.6e9 * price.broker_hour
    )
    together = Window.partitionBy(*named(every))
    return sums.withColumn("cost", cost).select(
        *columns,
        *(whole(name) for name in _USED[:-1]),
        (f.col("broker_us") / 1e6).alias("broker_s"),
        "cost",
        f.try_divide("cost", f.sum("cost").over(together)).alias("share"),
    )


_USED = ("requests", "messages", "bytes_in", "bytes_out", "broker_us")

"""Noisy neighbours: clients that suddenly take much more of the shared capacity than usual."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.periods import keys, seconds
from analytics.transforms.rollup import measures, require, whole
from analytics.transforms.tenants import owner


def neighbours(traffic: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Return the load of every client against its usual load, and its share of all requests.

    usual: the median of its windows if it is active in most of them; else the mean, because such a client comes and
    goes. traffic: records, or a roll-up with client_id, topic and group.

    Columns: time, client_id, tenant, requests, messages, share, usual, ratio.
    """
    require(traffic, "client_id", "topic", "group")
    windows = (
        traffic.where(f.col("client_id").isNotNull())
        .select(*keys(every), "client_id", owner().alias("tenant"), *measures(traffic))
        .groupBy("time", "client_id", "tenant")
        .agg(f.sum("requests").alias("requests"), f.sum("messages").alias("messages"))
    )
    own = Window.partitionBy("client_id", "tenant")
    span = (f.unix_seconds(f.max("time").over(own)) - f.unix_seconds(f.min("time").over(own))) / seconds(every) + 1
    present = f.count(f.lit(1)).over(own)
    median = f.percentile_approx("requests", 0.5).over(own)
    mean = (f.sum("requests").over(own) - f.col("requests")) / span
    usual = f.greatest(f.when(present >= span / 2, median).otherwise(mean), f.lit(1.0))
    share = f.col("requests") / f.sum("requests").over(Window.partitionBy("time"))
    return windows.select(
        "time",
        "client_id",
        "tenant",
        whole("requests"),
        whole("messages"),
        share.alias("share"),
        usual.alias("usual"),
        (f.col("requests") / usual).alias("ratio"),
    )

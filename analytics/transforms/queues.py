"""Queues: how evenly a topic's messages are spread over them."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import weight


def queues(requests: DataFrame, every: str | None = "1 hour", zone: str = "UTC") -> DataFrame:
    """Return messages sent to each queue. fair_share: of each, if all queues seen in the period were equal.

    Columns: [time], topic, broker, queue, messages, share, fair_share.
    """
    columns = [*named(every), "topic"]
    counts = (
        requests.where(is_operation(SEND) & f.col("ok") & f.col("queue").isNotNull() & f.col("topic").isNotNull())
        .select(
            *keys(every, zone), "topic", "broker", "queue", (f.col("messages") * weight(requests)).alias("messages")
        )
        .groupBy(*columns, "broker", "queue")
        .agg(f.sum("messages").alias("messages"))
    )
    together = Window.partitionBy(*columns)
    return counts.select(
        *columns,
        "broker",
        "queue",
        f.round("messages").cast("long").alias("messages"),
        f.try_divide("messages", f.sum("messages").over(together)).alias("share"),
        (1 / f.count(f.lit(1)).over(together)).alias("fair_share"),
    )

"""Hot topics: the topics with the most messages."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.periods import named
from analytics.transforms.rollup import rollup, whole


def hot_topics(traffic: DataFrame, every: str | None = None, zone: str = "UTC", top: int = 20) -> DataFrame:
    """Return the topics with the most messages, sent and delivered, and their share of all.

    Columns: [time], rank, topic, requests, messages, bytes_in, bytes_out, share.
    """
    sums = rollup(traffic.where(f.col("topic").isNotNull()), ["topic"], every, zone, latency=False)
    together = Window.partitionBy(*named(every))
    ranked = sums.select(
        *named(every),
        f.row_number().over(together.orderBy(f.desc("messages"), "topic")).alias("rank"),
        "topic",
        *(whole(name) for name in ("requests", "messages", "bytes_in", "bytes_out")),
        f.try_divide("messages", f.sum("messages").over(together)).alias("share"),
    )
    return ranked.where(f.col("rank") <= top)

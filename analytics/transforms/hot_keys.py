"""Hot keys: a single key with a large part of a topic's messages, which more queues or consumers cannot spread."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import weight


def hot_keys(requests: DataFrame, every: str | None = "1 hour", zone: str = "UTC", top: int = 10) -> DataFrame:
    """Return the most frequent keys of every topic, by hash, among the messages sent with a key.

    expected_share: of each key if all were equally frequent.

    Columns: [time], topic, rank, key_hash, messages, share, expected_share.
    """
    columns = [*named(every), "topic"]
    counts = (
        requests.where(is_operation(SEND) & f.col("ok") & f.col("key_hash").isNotNull() & f.col("topic").isNotNull())
        .select(*keys(every, zone), "topic", "key_hash", (f.col("messages") * weight(requests)).alias("messages"))
        .groupBy(*columns, "key_hash")
        .agg(f.sum("messages").alias("messages"))
    )
    together = Window.partitionBy(*columns)
    ranked = counts.select(
        *columns,
        f.row_number().over(together.orderBy(f.desc("messages"), "key_hash")).alias("rank"),
        "key_hash",
        f.round("messages").cast("long").alias("messages"),
        f.try_divide("messages", f.sum("messages").over(together)).alias("share"),
        (1 / f.count(f.lit(1)).over(together)).alias("expected_share"),
    )
    return ranked.where(f.col("rank") <= top)

"""Hot keys: a single key with a large part of a topic's messages, which more queues or consumers cannot spread."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.episodes import episodes
from analytics.transforms.findings import finding, severity_by
from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import weight

# Minimum share, minimum factor above the topic's usual, minimum number of messages, and minimum deviation of a Poisson
# count.
_SHARE = 0.25
_TIMES = 3.0
_LEAST = 20
_SCORE = 6.0


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


def findings(requests: DataFrame, every: str = "30 minutes") -> DataFrame:
    """Return findings hot_key: times when one key had far more of a topic than its top key usually has."""
    first = hot_keys(requests, every, top=1)
    of_topic = Window.partitionBy("topic")
    usual = f.greatest(f.percentile_approx("share", 0.5).over(of_topic), f.col("expected_share"))
    expected = f.col("messages") * f.col("usual") / f.col("share")
    hot = first.withColumn("usual", usual).where(
        (f.col("messages") >= _LEAST)
        & (f.col("share") >= _SHARE)
        & (f.col("share") >= _TIMES * f.col("usual"))
        & (f.col("messages") - expected - 0.5 >= _SCORE * f.sqrt(expected + 1))
    )
    measures = (
        f.sum("messages").alias("messages"),
        (f.sum("messages") / f.sum(f.col("messages") / f.col("share"))).alias("observed"),
        f.avg("usual").alias("expected"),
        f.max(f.col("share") / f.col("usual")).alias("score"),
    )
    found = episodes(hot, ["topic", "key_hash"], every, measures)
    text = f.format_string(
        "%.0f %% of what came to topic %s with a key had one, hash %016x (%,d messages; usually the first has %.1f %%)",
        f.col("observed") * 100,
        f.col("topic"),
        f.col("key_hash"),
        f.col("messages"),
        f.col("expected") * 100,
    )
    return finding(found, "hot_key", severity_by(f.col("observed"), 0.3, 0.6), f.col("topic"), text)

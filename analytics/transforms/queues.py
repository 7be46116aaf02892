"""Queues: how evenly a topic's messages are spread over them."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.episodes import episodes
from analytics.transforms.findings import finding, severity_by
from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import weight

# Minimum factor above the fair share, in windows with at least this many messages.
_TIMES = 3.0
_LEAST = 100


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


def skewed(requests: DataFrame, every: str = "30 minutes") -> DataFrame:
    """Return findings queue_skew: times when one queue got far more than its share, and than the fullest queue usually
    gets.
    """
    shares = queues(requests, every)
    window = Window.partitionBy("time", "topic")
    fullest = (
        shares.withColumn("all", f.sum("messages").over(window))
        .withColumn("rank", f.row_number().over(window.orderBy(f.desc("messages"), "broker", "queue")))
        .where((f.col("rank") == 1) & (f.col("all") >= _LEAST))
    )
    usual = f.percentile_approx("share", 0.5).over(Window.partitionBy("topic"))
    bad = fullest.withColumn("usual", usual).where(
        (f.col("share") >= _TIMES * f.col("fair_share")) & (f.col("share") >= 2 * f.col("usual"))
    )
    measures = (
        (f.sum("messages") / f.sum("all")).alias("observed"),
        f.avg("fair_share").alias("expected"),
        f.max(f.col("share") / f.col("fair_share")).alias("score"),
    )
    found = episodes(bad, ["topic", "broker", "queue"], every, measures)
    text = f.format_string(
        "queue %d of %s at %s got %.0f %% of the messages (a fair share is %.1f %%)",
        f.col("queue"),
        f.col("topic"),
        f.col("broker"),
        f.col("observed") * 100,
        f.col("expected") * 100,
    )
    return finding(found, "queue_skew", severity_by(f.col("score"), 4.0, 8.0), f.col("topic"), text)

"""Balance: messages that producers send, messages that consumers take, and the backlog between."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.operations import ACK, RECEIVE, SEND, is_operation
from analytics.transforms.periods import keys, seconds
from analytics.transforms.rollup import measures, require, whole


def balance(traffic: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Return, for every topic and each group that consumes it, messages sent, received first, redelivered and
    acknowledged, and the backlog at the window's end.

    Records show neither the messages from before nor messages that expired, so the backlog is counted from its lowest
    point so far: an estimate from below. Its growth is exact if all traffic came through the recorded replicas. wait_s:
    time that a message waits, by Little's law (backlog by throughput). Windows without traffic of the topic are absent.
    traffic: records, or a roll-up with code, topic and group.

    Columns: time, topic, group, sent, received, redelivered, acked, backlog, wait_s.
    """
    so_far = Window.partitionBy("topic", "group").orderBy("time").rowsBetween(Window.unboundedPreceding, 0)
    level = f.sum(f.col("sent") - f.col("received")).over(so_far)
    lowest = f.least(f.min("level").over(so_far), f.lit(0.0))
    throughput = f.col("received") / seconds(every)
    counted = _windows(traffic, every).withColumn("level", level).withColumn("backlog", f.col("level") - lowest)
    return counted.select(
        "time",
        "topic",
        "group",
        *(whole(name) for name in ("sent", "received", "redelivered", "acked", "backlog")),
        f.when(throughput > 0, f.col("backlog") / throughput).alias("wait_s"),
    )


def _windows(traffic: DataFrame, every: str) -> DataFrame:
    """Columns: time, topic, group, sent, received, redelivered, acked, answers (that contained messages)."""
    require(traffic, "code", "topic", "group")
    received = is_operation(RECEIVE)
    rows = traffic.where(is_operation(SEND, RECEIVE, ACK) & f.col("topic").isNotNull()).select(
        *keys(every), "code", "topic", "group", *measures(traffic)
    )
    amounts = {
        "sent": f.when(is_operation(SEND), f.col("messages")),
        "received": f.when(received, f.col("messages") - f.col("redelivered")),
        "redelivered": f.when(received, f.col("redelivered")),
        "acked": f.when(is_operation(ACK), f.col("messages")),
        "answers": f.when(received, f.col("moving")),
    }
    # A sent message has no group yet.
    consumer = f.when(~is_operation(SEND), f.col("group")).alias("group")
    sums = (
        rows.where(f.col("messages") > 0)
        .select(
            "time", "topic", consumer, *(f.coalesce(each, f.lit(0.0)).alias(name) for name, each in amounts.items())
        )
        .groupBy("time", "topic", "group")
        .agg(*(f.sum(name).alias(name) for name in amounts))
    )
    consumed = sums.where(f.col("group").isNotNull())
    # It counts for each group of the topic; a topic without groups has no balance.
    consumers = consumed.select("topic", f.col("group").alias("consumer")).distinct()
    sent = sums.where(f.col("group").isNull()).join(consumers, "topic", "inner")
    for_each = sent.select("time", "topic", f.col("consumer").alias("group"), *amounts)
    both = consumed.unionByName(for_each)
    return both.groupBy("time", "topic", "group").agg(*(f.sum(name).alias(name) for name in amounts))

"""End to end: from a send to the receive and the ack of the same message, as far as sampled traces show it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms.operations import ACK, RECEIVE, SEND, doing
from analytics.transforms.periods import keys, named

_PERCENTILES = {"receive_p50_us": ("to_receive_us", 0.5), "receive_p99_us": ("to_receive_us", 0.99),
                "ack_p50_us": ("to_ack_us", 0.5), "ack_p99_us": ("to_ack_us", 0.99)}  # fmt: skip


def traces(requests: DataFrame) -> DataFrame:
    """One row per traced message and group: when its send was answered, when it was first handed out, when that was
    acknowledged. Null where the records do not show it: not yet consumed, or consumed without a trace.

    trace_id, topic, group, sent, received, acked, to_receive_us, to_ack_us
    """
    done = f.timestamp_micros(f.unix_micros("time") + f.col("latency_us"))
    seen = requests.where(f.col("trace_id").isNotNull() & f.col("ok") & doing(SEND, RECEIVE, ACK)).select(
        "trace_id",
        "group",
        f.when(doing(SEND), f.col("topic")).alias("topic"),
        f.when(doing(SEND), done).alias("sent"),
        # When the answer left for the consumer; a receive begins before there is a message.
        f.when(doing(RECEIVE), done).alias("received"),
        f.when(doing(ACK), done).alias("acked"),
    )
    sends = (
        seen.where(f.col("sent").isNotNull())
        .groupBy("trace_id")
        .agg(f.min_by("topic", "sent").alias("topic"), f.min("sent").alias("sent"))
    )
    consumed = (
        seen.where(f.col("sent").isNull())
        .groupBy("trace_id", "group")
        .agg(f.min("received").alias("received"), f.max("acked").alias("acked"))
    )
    received, acked = (
        (f.unix_micros(name) - f.unix_micros("sent")).alias(alias)
        for name, alias in (("received", "to_receive_us"), ("acked", "to_ack_us"))
    )
    both = sends.join(consumed, "trace_id", "left")
    return both.select("trace_id", "topic", "group", "sent", "received", "acked", received, acked)


def end_to_end(requests: DataFrame, every: str | None = "1 hour", zone: str = "UTC") -> DataFrame:
    """Percentiles of the time from a send's answer to the receive's and the ack's, µs, by topic and group, at the
    time of the send. For a group without traces, `balance` estimates how long a message waits.

    [time], topic, group, traces, receive_p50_us, receive_p99_us, ack_p50_us, ack_p99_us
    """
    followed = traces(requests).where(f.col("group").isNotNull()).withColumnRenamed("sent", "time")
    columns = [*named(every), "topic", "group"]
    values = followed.select(*keys(every, zone), "topic", "group", "to_receive_us", "to_ack_us")
    return values.groupBy(*columns).agg(
        f.count(f.lit(1)).alias("traces"),
        *(f.percentile_approx(value, share).alias(name) for name, (value, share) in _PERCENTILES.items()),
    )

"""End to end: from a send to the receive and the acknowledgement of the same message, from sampled traces."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms.operations import ACK, RECEIVE, SEND, is_operation
from analytics.transforms.periods import keys, named

_PERCENTILES = {"receive_p50_us": ("to_receive_us", 0.5), "receive_p99_us": ("to_receive_us", 0.99),
                "ack_p50_us": ("to_ack_us", 0.5), "ack_p99_us": ("to_ack_us", 0.99)}  # fmt: skip


def traces(requests: DataFrame) -> DataFrame:
    """Return one row per traced message and group: times of the send's answer, of the first delivery, and of its
    acknowledgement.

    Null where the records show no such event: not consumed yet, or consumed without a trace.

    Columns: trace_id, topic, group, sent, received, acked, to_receive_us, to_ack_us.
    """
    done = f.timestamp_micros(f.unix_micros("time") + f.col("latency_us"))
    seen = requests.where(f.col("trace_id").isNotNull() & f.col("ok") & is_operation(SEND, RECEIVE, ACK)).select(
        "trace_id",
        "group",
        f.when(is_operation(SEND), f.col("topic")).alias("topic"),
        f.when(is_operation(SEND), done).alias("sent"),
        # The time at which the answer left; a receive may begin before the message exists.
        f.when(is_operation(RECEIVE), done).alias("received"),
        f.when(is_operation(ACK), done).alias("acked"),
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
    """Return percentiles of the time from a send's answer to the receive and to the acknowledgement, in µs, by topic
    and group, at the time of the send.

    For a group without traces, `balance` estimates the waiting time.

    Columns: [time], topic, group, traces, receive_p50_us, receive_p99_us, ack_p50_us, ack_p99_us.
    """
    followed = traces(requests).where(f.col("group").isNotNull()).withColumnRenamed("sent", "time")
    columns = [*named(every), "topic", "group"]
    values = followed.select(*keys(every, zone), "topic", "group", "to_receive_us", "to_ack_us")
    return values.groupBy(*columns).agg(
        f.count(f.lit(1)).alias("traces"),
        *(f.percentile_approx(value, share).alias(name) for name, (value, share) in _PERCENTILES.items()),
    )

"""Redelivery: repeated deliveries, dead letters, and storms of them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from analytics.transforms.operations import BURY, NACK, OPERATIONS, RECEIVE, is_operation
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import HIGHEST, measures, require

_SEND_BACK = OPERATIONS[NACK][0]


def redelivery(traffic: DataFrame, every: str | None = "5 minutes", zone: str = "UTC") -> DataFrame:
    """Return deliveries of every group and topic, with those repeated, sent back, delayed and given up.

    A message counts as redelivered by its answer's highest attempt, or because it comes from the group's retry topic;
    for answers with several messages that is an upper bound. traffic: records, or a roll-up with code, group and topic.

    Columns: [time], group, topic, delivered, redelivered, send_backs, nacks, dead_letters, highest_attempt,
    redelivery_rate.
    """
    columns = [*named(every), "group", "topic"]
    done = f.col("requests") - f.col("errors")
    counts = {
        "delivered": _of(is_operation(RECEIVE), f.col("messages")),
        "redelivered": f.sum("redelivered"),
        "send_backs": _of(f.col("code") == _SEND_BACK, done),
        "nacks": _of(is_operation(NACK) & (f.col("code") != _SEND_BACK), done),
        "dead_letters": _of(is_operation(BURY), done),
    }
    sums = (
        _deliveries(traffic, every, zone, ("group", "topic"))
        .groupBy(*columns)
        .agg(
            *(f.round(count).cast("long").alias(name) for name, count in counts.items()),
            f.max(HIGHEST).alias("highest_attempt"),
        )
    )
    rate = f.when(f.col("delivered") > 0, f.col("redelivered") / f.col("delivered")).alias("redelivery_rate")
    return sums.select(*columns, *counts, "highest_attempt", rate)


def _of(condition: Column, value: Column) -> Column:
    return f.sum(f.when(condition, value).otherwise(0.0))


def _deliveries(traffic: DataFrame, every: str | None, zone: str, by: tuple[str, ...]) -> DataFrame:
    """Return the requests that concern deliveries to groups."""
    require(traffic, "code", *by)
    rows = traffic.where(is_operation(RECEIVE, NACK, BURY) & f.col("group").isNotNull())
    return rows.select(*keys(every, zone), "code", *by, *measures(traffic))

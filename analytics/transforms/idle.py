"""Idle topics and groups."""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.operations import RECEIVE, SEND, is_operation, origin
from analytics.transforms.tenants import tenant


def idle(requests: DataFrame, members: DataFrame, at: datetime, after: timedelta = timedelta(days=7)) -> DataFrame:
    """Return topics and groups without messages for `after` before `at`, as far as the records go back.

    A topic that is filled and never consumed, or polled and never filled, is idle too. idle_days: since the last
    message, null without one.

    Columns: kind (topic or group), name, tenant, last_sent, last_received, idle_days, reason.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} names no time zone")
    limit = f.lit(at - after)
    moved = f.col("ok") & (f.col("messages") > 0)
    seen = requests.where(is_operation(SEND, RECEIVE) & (f.col("time") < f.lit(at))).select(
        origin(f.col("topic")).alias("topic"),
        "group",
        f.when(moved & is_operation(SEND), f.col("time")).alias("last_sent"),
        f.when(moved & is_operation(RECEIVE), f.col("time")).alias("last_received"),
        f.when(is_operation(RECEIVE), f.col("time")).alias("last_polled"),
    )
    ages = [f.max(name).alias(name) for name in ("last_sent", "last_received", "last_polled")]
    topics = seen.where(f.col("topic").isNotNull()).groupBy(f.col("topic").alias("name")).agg(*ages)
    quiet, unfilled, unread = (
        f.coalesce(f.col(name) < limit, f.lit(True)) for name in ("last_polled", "last_sent", "last_received")
    )
    topic_reason = (
        f.when(unfilled & unread & quiet, "no traffic")
        .when(unfilled & unread, "polled, but nothing is sent to it")
        .when(unread, "sent to, but nobody receives from it")
    )
    found_topics = topics.select(f.lit("topic").alias("kind"), "name", *_AGES, topic_reason.alias("reason"))
    used = seen.where(f.col("group").isNotNull() & f.col("last_polled").isNotNull())
    groups = used.groupBy(f.col("group").alias("name")).agg(*ages)
    everyone = groups.join(_present(members, at), "name", "full_outer")
    present = f.coalesce(f.col("present"), f.lit(0)) > 0
    group_reason = f.when(unread & present, "has members, but receives nothing").when(
        unread, "no traffic and no members"
    )
    found_groups = everyone.select(f.lit("group").alias("kind"), "name", *_AGES, group_reason.alias("reason"))
    last = f.greatest("last_sent", "last_received")
    days = (f.unix_seconds(f.lit(at)) - f.unix_seconds(last)) / 86400
    return (
        found_topics.unionByName(found_groups)
        .where(f.col("reason").isNotNull())
        .select("kind", "name", tenant(f.col("name")).alias("tenant"), *_AGES, days.alias("idle_days"), "reason")
    )


_AGES = ("last_sent", "last_received")


def _present(members: DataFrame, at: datetime) -> DataFrame:
    """Return the number of members of each consumer group at that time: those whose last event is that they joined."""
    known = members.where((f.col("kind") == "consumer") & (f.col("time") < f.lit(at)))
    last = Window.partitionBy("group", "client_id").orderBy(f.desc("time"), f.asc("event"))
    latest = known.withColumn("place", f.row_number().over(last)).where(f.col("place") == 1)
    return latest.groupBy(f.col("group").alias("name")).agg(f.count_if(f.col("event") == "joined").alias("present"))

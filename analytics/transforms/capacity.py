"""Capacity: the busy hour, its growth, and the day on which it reaches the limit."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.facts import Limits
from analytics.transforms.periods import keys, zone_name
from analytics.transforms.rollup import measures

MEASURES = ("requests_per_s", "messages_per_s", "bytes_per_s")
# A day with less recorded time has no meaningful busy hour.
_COMPLETE = 20


def daily(traffic: DataFrame, zone: str = "UTC") -> DataFrame:
    """Return the busiest hour of every local day: its means per second, each measure with its own hour; busy_hour is
    that of requests.

    Columns: time (start of the day), requests_per_s, messages_per_s, bytes_per_s, busy_hour (0 to 23, local), hours
    (with records).
    """
    rows = traffic.select(*keys("1 hour"), *measures(traffic))
    hours = rows.groupBy("time").agg(
        (f.sum("requests") / 3600).alias("requests_per_s"),
        (f.sum("messages") / 3600).alias("messages_per_s"),
        (f.sum(f.col("bytes_in") + f.col("bytes_out")) / 3600).alias("bytes_per_s"),
    )
    local = f.from_utc_timestamp("time", zone_name(zone))
    days = hours.select(*keys("1 day", zone), f.hour(local).alias("hour"), *MEASURES)
    busiest = days.groupBy("time").agg(
        *(f.max(name).alias(name) for name in MEASURES),
        f.max_by("hour", f.struct("requests_per_s", "hour")).alias("busy_hour"),
        f.count(f.lit(1)).alias("hours"),
    )
    return busiest.select("time", *MEASURES, "busy_hour", "hours")


def forecast(traffic: DataFrame, limits: Limits | None = None, zone: str = "UTC") -> DataFrame:
    """Return the growth of the busy hour by a straight line through the days, and its consequences, per measure.

    per_day: growth in units per second and day, over days with at least 20 recorded hours; fit: R² of the line; both
    null below three such days. limit: of all replicas together, after headroom. days_until_limit: from the last day on,
    null without growth, 0 if reached. replicas_needed: today, and replicas_ahead in `ahead_days`.

    Columns: measure, busy_hour, peak, per_day, fit, limit, days_until_limit, replicas_needed, replicas_ahead.
    """
    given = limits or Limits()
    each = {name: getattr(given, name) * given.headroom for name in MEASURES}
    days = daily(traffic, zone).withColumn("day", f.unix_seconds("time") / 86400)
    entries = [
        f.struct(f.lit(name).alias("measure"), f.col(name).alias("value"), f.lit(each[name]).alias("each"))
        for name in MEASURES
    ]
    lines = days.select("day", "busy_hour", "hours", f.explode(f.array(*entries)).alias("entry")).select(
        "day", "busy_hour", "hours", "entry.*"
    )
    complete = f.when(f.col("hours") >= _COMPLETE, f.col("value"))
    last = f.when(f.col("hours") >= _COMPLETE, f.col("day"))
    several = f.count(complete) >= 3
    fitted = lines.groupBy("measure", "each").agg(
        f.max_by("busy_hour", f.struct("value", "day")).alias("busy_hour"),
        f.max("value").alias("peak"),
        f.when(several, f.regr_slope(complete, "day")).alias("per_day"),
        f.when(several, f.regr_r2(complete, "day")).alias("fit"),
        f.when(several, f.regr_intercept(complete, "day") + f.regr_slope(complete, "day") * f.max(last)).alias("level"),
    )
    # The fitted line, but at least the measured value.
    now = f.greatest(f.coalesce("level", "peak"), f.col("peak"))
    limit = f.col("each") * given.replicas
    days_left = f.when(now >= limit, 0.0).when(f.col("per_day") > 0, (limit - now) / f.col("per_day"))
    later = now + f.greatest(f.coalesce("per_day", f.lit(0.0)), f.lit(0.0)) * given.ahead_days
    return fitted.select(
        "measure",
        "busy_hour",
        "peak",
        "per_day",
        "fit",
        limit.alias("limit"),
        days_left.alias("days_until_limit"),
        f.greatest(f.ceil(now / f.col("each")), f.lit(1)).alias("replicas_needed"),
        f.greatest(f.ceil(later / f.col("each")), f.lit(1)).alias("replicas_ahead"),
    )

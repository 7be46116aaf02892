"""Anomalies: deviations from the usual level of the day and the hour, robust and explained.

The baseline is Tukey's median polish of the logarithm: a typical level, an effect of the time of day, an effect of the
day. One odd hour moves none of these medians; a busy Monday or a growing topic is no anomaly.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.episodes import episodes
from analytics.transforms.findings import finding, severity_by
from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import seconds, zone_name
from analytics.transforms.rollup import rollup

# Robust deviations; factor above or below the usual value; minimum usual value.
_SCORE = 5.0
_TIMES = 2.5
_LEAST = 20.0
# Minimum number of days for a usual value.
_DAYS = 3


MEASURES = ("messages", "p99_us")


def series(
    traffic: DataFrame, every: str = "1 hour", zone: str = "UTC", measures: Sequence[str] = MEASURES
) -> DataFrame:
    """Return the traffic of every topic and period, with the usual value at that time of day on such a day.

    measure: messages, and p99_us of their latency. Periods without messages count as 0, from the first to the last
    period of the topic. usual: the baseline; spread: the usual deviation, as a share of it (0.2: a fifth more or less);
    score: number of such deviations, negative below, of the square root, because a count's chance is symmetric there,
    while a drop of the count itself to zero never exceeds 1 / spread. Null where fewer than three days have this time
    of day. traffic: records, or a roll-up with code and topic and periods no longer than `every`.

    Columns: time, topic, measure, value, usual, spread, score.
    """
    tailed = "p99_us" in measures
    sends = traffic.where(is_operation(SEND) & f.col("topic").isNotNull())
    sent = rollup(sends, ["topic"], every, zone, latency=tailed)
    tail = histogram.quantile(f.col("latency"), 0.99) if tailed else f.lit(None)
    messages = f.coalesce("messages", f.lit(0.0))
    # The noise of a percentile depends on the number of requests.
    entries = {"messages": _measurement("messages", messages, messages),
               "p99_us": _measurement("p99_us", f.col("p99_us"), f.col("requests") / 4)}  # fmt: skip
    filled = _with_empty_periods(sent.select("time", "topic", "messages", tail.alias("p99_us"), "requests"), every)
    long = filled.select("time", "topic", f.explode(f.array(*(entries[name] for name in measures))).alias("entry"))
    values = long.select("time", "topic", "entry.*").where(f.col("value").isNotNull())
    return _judged(values, zone)


def _measurement(name: str, value: Column, weight: Column) -> Column:
    """One measured value; `of` is the number of events behind it."""
    return f.struct(
        f.lit(name).alias("measure"), value.cast("double").alias("value"), weight.cast("double").alias("of")
    )


def _with_empty_periods(values: DataFrame, every: str) -> DataFrame:
    """Add the periods without messages."""
    length = seconds(every)
    spans = values.groupBy("topic").agg(
        f.min(f.unix_seconds("time")).alias("first"), f.max(f.unix_seconds("time")).alias("last")
    )
    periods = spans.select("topic", f.explode(f.sequence("first", "last", f.lit(length).cast("long"))).alias("second"))
    grid = periods.select("topic", f.timestamp_seconds("second").alias("time"))
    return grid.join(values, ["topic", "time"], "left")


def _judged(long: DataFrame, zone: str) -> DataFrame:
    local = f.from_utc_timestamp("time", zone_name(zone))
    columns = long.withColumn("slot", f.date_format(local, "HH:mm")).withColumn("day", f.to_date(local))
    line = ("topic", "measure")
    of_slot = Window.partitionBy(*line, "slot")
    of_day = Window.partitionBy(*line, "day")
    of_all = Window.partitionBy(*line)

    def median(name: str, window: object) -> Column:
        return f.percentile_approx(name, 0.5, 1000).over(window)  # type: ignore[arg-type]

    polished = (
        columns.withColumn("log", f.log1p("value"))
        .withColumn("by_slot", median("log", of_slot))
        .withColumn("days", f.count(f.lit(1)).over(of_slot))
        .withColumn("rest", f.col("log") - f.col("by_slot"))
        .withColumn("by_day", median("rest", of_day))
        .withColumn("rest", f.col("rest") - f.col("by_day"))
        .withColumn("apart", f.abs("rest"))
        .withColumn("deviation", 1.4826 * median("apart", of_all))
    )
    usual = f.greatest(f.expm1(f.col("by_slot") + f.col("by_day")), f.lit(0.0))
    # Share of a count's value that chance alone explains.
    count = f.when(f.col("measure") == "messages", usual).otherwise(f.col("of"))
    spread = f.sqrt(f.col("deviation") ** 2 + 1 / f.greatest(count, f.lit(1.0)))
    score = 2 * (f.sqrt((f.col("value") + 1) / (usual + 1)) - 1) / spread
    known = f.col("days") >= _DAYS
    return polished.select(
        "time",
        *line,
        "value",
        f.when(known, usual).alias("usual"),
        f.when(known, spread).alias("spread"),
        f.when(known, score).alias("score"),
    )


def anomalies(
    traffic: DataFrame, every: str = "30 minutes", zone: str = "UTC", measures: Sequence[str] = ("messages",)
) -> DataFrame:
    """Return findings traffic_drop, traffic_surge and (measure p99_us) latency_spike: periods far from the baseline.

    Latency is off by default, because `latency.spikes` reports it once for a broker instead of for each of its topics.
    """
    judged = series(traffic, every, zone, measures).withColumn("times", (f.col("value") + 1) / (f.col("usual") + 1))
    far = (f.abs("score") >= _SCORE) & (f.col("usual") >= _LEAST)
    drop = (f.col("measure") == "messages") & (f.col("times") <= 1 / _TIMES)
    more = f.col("times") >= _TIMES
    kind = (
        f.when(drop, "traffic_drop")
        .when(more & (f.col("measure") == "messages"), "traffic_surge")
        .when(more, "latency_spike")
    )
    odd = judged.where(far).withColumn("kind", kind).where(f.col("kind").isNotNull())
    means = (
        f.avg("value").alias("observed"),
        f.avg("usual").alias("expected"),
        f.max(f.abs("score")).alias("score"),
    )
    found = episodes(odd, ["topic", "kind", "measure"], every, means)
    what = f.when(f.col("measure") == "messages", f"messages per {every}").otherwise("µs for 99 % of the sends")
    text = f.format_string(
        "topic %s: %,.0f %s, where %,.0f are usual at this time of such a day (%.1f times the usual deviation)",
        f.col("topic"),
        f.col("observed"),
        what,
        f.col("expected"),
        f.col("score"),
    )
    return finding(found, f.col("kind"), severity_by(f.col("score"), 8.0, 15.0), f.col("topic"), text)

"""Redelivery: repeated deliveries, dead letters, and storms of them."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from analytics.transforms.episodes import without_overlaps
from analytics.transforms.findings import finding, severity_by
from analytics.transforms.operations import BURY, NACK, OPERATIONS, RECEIVE, is_operation
from analytics.transforms.outbreaks import about, culprit_phrase, outbreaks
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import HIGHEST, measures, require

_SUSPECTS = ("client_id", "version", "topic", "broker")
_FLOOR = 0.02
_DEAD_FLOOR = 0.005
_SEND_BACK = OPERATIONS[NACK][0]
# Windows for storms: length and offset, in multiples of the first length. Short windows give the best time; long ones
# add up a storm that is too thin for a short one; the last cover the border between two long ones.
_WINDOWS = (("10 minutes", "0 minutes"), ("40 minutes", "0 minutes"), ("40 minutes", "20 minutes"))


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


def storms(traffic: DataFrame, windows: Sequence[tuple[str, str]] = _WINDOWS) -> DataFrame:
    """Return findings redelivery_storm and dlq_storm: groups that fail on far more messages than usual, with the
    client, version, topic or broker to which it is confined.

    Answers are counted, not messages: a batch with one repeated message is one event. A storm in several windows is
    reported once, by the first of them. traffic: records, or a roll-up with code, group, topic, broker, client_id and
    version.
    """
    every = windows[0][0]
    columns = ["time", "group", *_SUSPECTS]
    done = f.col("requests") - f.col("errors")
    counted = (
        _deliveries(traffic, every, "UTC", ("group", *_SUSPECTS))
        .groupBy(*columns)
        .agg(
            (f.sum("repeats") + _of(is_operation(NACK), done)).alias("again"),
            _of(is_operation(BURY), done).alias("dead"),
            (_of(is_operation(RECEIVE), f.col("moving")) + _of(is_operation(NACK, BURY), done)).alias("total"),
        )
    )
    repeated = counted.withColumnRenamed("again", "bad").drop("dead")
    dead = counted.withColumnRenamed("dead", "bad").drop("again")
    return _found(repeated, windows, _FLOOR, "redelivery_storm", "were repeats or refusals", (0.1, 0.5)).unionByName(
        _found(dead, windows, _DEAD_FLOOR, "dlq_storm", "gave up a message", (0.01, 0.1))
    )


def _of(condition: Column, value: Column) -> Column:
    return f.sum(f.when(condition, value).otherwise(0.0))


def _deliveries(traffic: DataFrame, every: str | None, zone: str, by: tuple[str, ...]) -> DataFrame:
    """Return the requests that concern deliveries to groups."""
    require(traffic, "code", *by)
    rows = traffic.where(is_operation(RECEIVE, NACK, BURY) & f.col("group").isNotNull())
    return rows.select(*keys(every, zone), "code", *by, *measures(traffic))


def _found(
    cells: DataFrame,
    windows: Sequence[tuple[str, str]],
    floor: float,
    kind: str,
    words: str,
    levels: tuple[float, float],
) -> DataFrame:
    storms = without_overlaps([_outbreaks(cells, *window, floor) for window in windows], ["subject"])
    text = f.format_string(
        f"%.1f %% of the deliveries to group %s {words} (%,.0f; usually %.1f %%)%s",
        f.col("observed") * 100,
        f.col("subject"),
        f.col("bad"),
        f.col("expected") * 100,
        culprit_phrase(_SUSPECTS),
    )
    named = about(storms, "group", "topic", "broker", "client_id")
    return finding(named, kind, severity_by(f.col("observed"), *levels), f.col("subject"), text)


def _outbreaks(cells: DataFrame, every: str, begins: str, floor: float) -> DataFrame:
    time = f.window("time", every, every, begins)["start"]
    return outbreaks(cells.withColumn("time", time), ["group"], _SUSPECTS, every, floor)

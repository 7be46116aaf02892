"""Sessions: connections that came, stayed and went, and clients that another replica took over."""

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.episodes import episodes
from analytics.transforms.findings import finding, graded
from analytics.transforms.periods import keys, seconds

# Causes for which nobody had meant the connection to end.
CRASHES = ("reset", "unresponsive")
# A connection whose number was given anew: its process died, and nobody wrote down its end.
LOST = "lost"

_WHERE = ("replica", "worker", "connection")
_SAID = ("client_id", "language", "version")


def sessions(connections: DataFrame) -> DataFrame:
    """One row per connection. One that is still open has no `closed`; one that was open before the records begin has
    `opened` by its age.

    replica, worker, connection, protocol, client_id, address, language, version, listener, tls, opened, closed,
    duration_ms, cause, crashed, requests, bytes_in, bytes_out
    """
    # An open comes before a close of the same microsecond.
    ordered = Window.partitionBy(*_WHERE).orderBy("time", f.desc("event"))
    following = {name: f.lead(name).over(ordered) for name in ("event", "time", *_LATE)}
    paired = connections.select(
        "*",
        f.lag("event").over(ordered).alias("before"),
        *(column.alias(f"next_{name}") for name, column in following.items()),
    )
    opens = paired.where(f.col("event") == "open").select(*_WHERE, *_EARLY, f.col("time").alias("opened"), *_ends())
    age = f.unix_micros("time") - f.coalesce(f.col("age_ms"), f.lit(0)) * 1000
    alone = (f.col("event") == "close") & ~f.col("before").eqNullSafe("open")
    closes = paired.where(alone).select(
        *_WHERE, *_EARLY, f.timestamp_micros(age).alias("opened"), f.col("time").alias("closed"), *_LATE
    )
    return opens.unionByName(closes).select(
        *_WHERE,
        "protocol",
        "client_id",
        "address",
        "language",
        "version",
        "listener",
        "tls",
        "opened",
        "closed",
        f.coalesce("age_ms", f.unix_millis("closed") - f.unix_millis("opened")).alias("duration_ms"),
        "cause",
        f.coalesce(f.col("cause").isin(*CRASHES, LOST), f.lit(False)).alias("crashed"),
        "requests",
        "bytes_in",
        "bytes_out",
    )


_EARLY = ("listener", "tls", "address")
_LATE = ("protocol", *_SAID, "cause", "age_ms", "requests", "bytes_in", "bytes_out")


def _ends() -> list[Column]:
    """The columns of an opened connection's end, taken from the row that follows."""
    closed = f.col("next_event") == "close"
    columns = {name: f.when(closed, f.col(f"next_{name}")) for name in _LATE}
    columns["protocol"] = f.coalesce(columns["protocol"], f.col("protocol"))
    columns["cause"] = f.coalesce(columns["cause"], f.when(f.col("next_event") == "open", LOST))
    # What a client says of itself is sometimes known when it opens.
    columns |= {name: f.coalesce(columns[name], f.col(name)) for name in _SAID}
    return [
        f.when(closed, f.col("next_time")).alias("closed"),
        *(column.alias(name) for name, column in columns.items()),
    ]


def churn(connections: DataFrame, every: str = "5 minutes", zone: str = "UTC") -> DataFrame:
    """time, replica, protocol, opened, closed, crashed"""
    return (
        connections.select(*keys(every, zone), "replica", "protocol", "event", "cause")
        .groupBy("time", "replica", "protocol")
        .agg(
            f.count_if(f.col("event") == "open").alias("opened"),
            f.count_if(f.col("event") == "close").alias("closed"),
            f.count_if(f.col("cause").isin(*CRASHES)).alias("crashed"),
        )
    )


def takeovers(
    members: DataFrame, requests: DataFrame | None = None, within: timedelta = timedelta(hours=1)
) -> DataFrame:
    """Members that came back: to the same replica, or to another that took over, and how long that took.

    A member that joins elsewhere without having left was lost with its replica; then its last request there tells when,
    if `requests` are given, else `left` and gap_ms are null. Who comes back later than `within` is a new member.

    client_id, group, kind, left, joined, gap_ms, from_replica, to_replica, cause
    """
    ordered = Window.partitionBy("client_id", "group", "kind").orderBy("time", f.desc("event"))
    before = {name: f.lag(name).over(ordered) for name in ("event", "time", "replica", "worker", "cause")}
    known = members.where(f.col("client_id").isNotNull())
    returned = known.select("*", *(column.alias(f"last_{name}") for name, column in before.items())).where(
        (f.col("event") == "joined") & f.col("last_event").isNotNull()
    )
    vanished = f.col("last_event") == "joined"
    moved = (f.col("last_replica") != f.col("replica")) | (f.col("last_worker") != f.col("worker"))
    found = returned.where(~vanished | moved).select(
        "client_id",
        "group",
        "kind",
        f.when(~vanished, f.col("last_time")).alias("left"),
        f.col("time").alias("joined"),
        f.col("last_replica").alias("from_replica"),
        f.col("replica").alias("to_replica"),
        f.when(vanished, LOST).otherwise(f.col("last_cause")).alias("cause"),
    )
    if requests is not None:
        found = _last_seen(found, requests)
    gap = f.unix_millis("joined") - f.unix_millis("left")
    timed = found.withColumn("gap_ms", gap).where(
        f.col("gap_ms").isNull() | (f.col("gap_ms") <= within / timedelta(milliseconds=1))
    )
    return timed.select("client_id", "group", "kind", "left", "joined", "gap_ms", "from_replica", "to_replica", "cause")


def _last_seen(found: DataFrame, requests: DataFrame) -> DataFrame:
    """The lost ones with the time of their last request at the replica they were lost with."""
    own = requests.where(f.col("client_id").isNotNull()).select(
        "client_id", f.col("replica").alias("from_replica"), "time"
    )
    lost = found.where(f.col("left").isNull()).drop("left")
    # Few are lost: they go to the requests, not the requests to them.
    seen = own.join(f.broadcast(lost), ["client_id", "from_replica"], "right")
    before = f.when(f.col("time") < f.col("joined"), f.col("time"))
    columns = [name for name in found.columns if name != "left"]
    return found.where(f.col("left").isNotNull()).unionByName(seen.groupBy(*columns).agg(f.max(before).alias("left")))


_LEAST = 10
_TIMES = 5.0
_SCORE = 6.0


def storms(connections: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Findings connection_storm: times when far more connections than usual ended at a replica, or came to one without
    such an end elsewhere (a replica that died says nothing)."""
    closed = _rush(connections.where(f.col("event") == "close"), every)
    opened = _rush(connections.where(f.col("event") == "open"), every)
    others = closed.select(f.date_trunc("day", "start").alias("date"), f.col("start").alias("since"), "end")
    others = others.withColumnRenamed("end", "until")
    # By the day, so that not everything is compared with everything; a storm over midnight is told twice at worst.
    same = (
        (f.date_trunc("day", "start") == f.col("date"))
        & (f.col("start") < f.col("until"))
        & (f.col("end") > f.col("since"))
    )
    return _found(closed, "ended").unionByName(_found(opened.join(others, same, "left_anti"), "came"))


def _rush(events: DataFrame, every: str) -> DataFrame:
    """Episodes with many more events at a replica than on average."""
    counts = events.select(*keys(every), "replica").groupBy("time", "replica").agg(f.count(f.lit(1)).alias("events"))
    of_replica = Window.partitionBy("replica")
    span = f.unix_seconds(f.max("time").over(of_replica)) - f.unix_seconds(f.min("time").over(of_replica))
    # Windows without any event are not there, but count; without this one's own, so that one storm hides no other.
    others = f.greatest(span / seconds(every), f.lit(1.0))
    usual = (f.sum("events").over(of_replica) - f.col("events")) / others
    score = (f.col("events") - f.col("usual") - 0.5) / f.sqrt(f.col("usual") + 1)
    judged = counts.withColumn("usual", usual).withColumn("score", score)
    many = judged.where(
        (f.col("events") >= _LEAST) & (f.col("score") >= _SCORE) & (f.col("events") >= _TIMES * f.col("usual"))
    )
    measures = (
        f.sum("events").cast("double").alias("observed"),
        f.sum("usual").alias("expected"),
        f.max("score").alias("score"),
    )
    return episodes(many, ["replica"], every, measures)


def _found(storms: DataFrame, words: str) -> DataFrame:
    text = f.format_string(
        f"%,.0f connections {words} at replica %s (usually %.1f in that time)",
        f.col("observed"),
        f.col("replica"),
        f.col("expected"),
    )
    return finding(storms, "connection_storm", graded(f.col("score"), 8.0, 20.0), f.col("replica"), text)

"""Sessions: connections from open to close, and clients that moved to another replica."""

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.periods import keys

# Causes of unintended ends.
CRASHES = ("reset", "unresponsive")
# Cause of a connection whose number was used again: its process died without recording its end.
LOST = "lost"

_WHERE = ("replica", "worker", "connection")
_SAID = ("client_id", "language", "version")


def sessions(connections: DataFrame) -> DataFrame:
    """Return one row per connection. An open connection has no `closed`; one from before the first record has `opened`
    by its age.

    Columns: replica, worker, connection, protocol, client_id, address, language, version, listener, tls, opened,
    closed, duration_ms, cause, crashed, requests, bytes_in, bytes_out.
    """
    # An open sorts before a close of the same microsecond.
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
    """Return the columns of an opened connection's end, taken from the following row."""
    closed = f.col("next_event") == "close"
    columns = {name: f.when(closed, f.col(f"next_{name}")) for name in _LATE}
    columns["protocol"] = f.coalesce(columns["protocol"], f.col("protocol"))
    columns["cause"] = f.coalesce(columns["cause"], f.when(f.col("next_event") == "open", LOST))
    # Some clients identify themselves when they connect.
    columns |= {name: f.coalesce(columns[name], f.col(name)) for name in _SAID}
    return [
        f.when(closed, f.col("next_time")).alias("closed"),
        *(column.alias(name) for name, column in columns.items()),
    ]


def churn(connections: DataFrame, every: str = "5 minutes", zone: str = "UTC") -> DataFrame:
    """Columns: time, replica, protocol, opened, closed, crashed."""
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
    """Return members that came back, to the same or another replica, and the length of the gap.

    A member that joins elsewhere without having left was lost with its replica; its last request there gives the time
    if `requests` are given, else `left` and gap_ms are null. A member that returns after `within` is a new one.

    Columns: client_id, group, kind, left, joined, gap_ms, from_replica, to_replica, cause.
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
    """Return the lost members with the time of their last request at that replica."""
    own = requests.where(f.col("client_id").isNotNull()).select(
        "client_id", f.col("replica").alias("from_replica"), "time"
    )
    lost = found.where(f.col("left").isNull()).drop("left")
    # Lost members are few: join them to the requests by broadcast.
    seen = own.join(f.broadcast(lost), ["client_id", "from_replica"], "right")
    before = f.when(f.col("time") < f.col("joined"), f.col("time"))
    columns = [name for name in found.columns if name != "left"]
    return found.where(f.col("left").isNotNull()).unionByName(seen.groupBy(*columns).agg(f.max(before).alias("left")))

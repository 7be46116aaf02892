"""Roll-ups: request records summed by time and some columns; roll-ups can be summed again.

Transforms need sums and a histogram of requests, so a roll-up of roll-ups equals that of the records: hours add up to
days, files of yesterday and today to one result. Sums are doubles because a sampled record stands for several.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.operations import RECEIVE, WEIGHT, is_operation
from analytics.transforms.periods import keys, named
from remoting.names import RETRY_PREFIX

# Columns for the state of services.
SERVICE = ("protocol", "code", "topic", "broker")
# Columns for detectors and most other transforms.
CELL = ("protocol", "code", "topic", "group", "broker", "client_id", "language", "version")
# Columns of stored roll-ups: the same without clients, whose number grows without bound; a sketch counts them.
STORED = ("protocol", "code", "topic", "group", "broker", "language", "version")
# Columns of a report: the same without clients, and those for the load of single clients.
SUBJECT = ("protocol", "code", "topic", "group", "broker")
CLIENT = ("client_id", "topic", "group")

# Summed: requests, failed requests, messages, bytes of bodies, broker µs; of the requests, those that moved messages,
# those whose answer contained a redelivered message, and the messages of such answers.
SUMS = (
    "requests",
    "errors",
    "messages",
    "bytes_in",
    "bytes_out",
    "broker_us",
    "moving",
    "repeats",
    "redelivered",
)
# Not summed: the highest delivery attempt.
HIGHEST = "attempt"
# Not summed but merged: a HyperLogLog sketch of the client ids, within 2 % of their number; exact for a few.
CLIENTS = "clients"


def rollup(
    traffic: DataFrame,
    by: Sequence[str],
    every: str | None = "1 hour",
    zone: str = "UTC",
    *,
    latency: bool = True,
    clients: bool = False,
) -> DataFrame:
    """Sum traffic by time and the columns `by`: [time], *by, the SUMS, attempt, and `latency`, a histogram in µs.

    traffic: request records, or a roll-up that has the columns `by` (and shorter periods). latency=False leaves the
    histogram out, which halves the work. clients=True adds `clients`, a sketch of the client ids, in addition to
    the histogram. Raises ValueError for a missing column.
    """
    require(traffic, *by, *(("latency",) if latency and is_rollup(traffic) else ()))
    columns = [*named(every), *by]
    known = [name for name in (CLIENTS, "client_id") if clients and name in traffic.columns]
    require(traffic, *((CLIENTS,) if clients and not known else ()))
    if not latency:
        cells = traffic.select(*keys(every, zone), *by, *measures(traffic))
        return cells.groupBy(*columns).agg(*added())
    long = _long(traffic) if is_rollup(traffic) else traffic.withColumn("bucket", histogram.bucket(f.col("latency_us")))
    cells = long.select(
        *keys(every, zone), *by, *measures(traffic), "bucket", *(("count",) if is_rollup(traffic) else ()), *known
    )
    if not is_rollup(traffic):
        cells = cells.withColumn("count", f.col("requests"))
    # By bucket first: then one entry per bucket is collected.
    buckets = cells.groupBy(*columns, "bucket").agg(*added(), f.sum("count").alias("count"), *_sketched(known))
    merged = [f.hll_union_agg(CLIENTS).alias(CLIENTS)] if clients else []
    return buckets.groupBy(*columns).agg(*added(), histogram.collected("bucket", "count").alias("latency"), *merged)


def _sketched(known: Sequence[str]) -> list[Column]:
    """Return the aggregate that sketches clients. known: client_id, sketches, or both where some rows have one each."""
    if not known:
        return []
    aggregates = {"client_id": f.hll_sketch_agg("client_id"), CLIENTS: f.hll_union_agg(CLIENTS)}
    first, *others = (aggregates[name] for name in known)
    return [(f.hll_union(first, others[0]) if others else first).alias(CLIENTS)]


def is_rollup(traffic: DataFrame) -> bool:
    """Return whether the frame is a roll-up."""
    return "requests" in traffic.columns


def weight(traffic: DataFrame) -> Column:
    """Return the number of requests that a record stands for."""
    return f.expr(WEIGHT) if "weight" in traffic.columns else f.lit(1.0)


def measures(traffic: DataFrame) -> list[Column]:
    """Return the SUMS of a row as doubles, and its attempt: computed for records, taken over for roll-ups."""
    if is_rollup(traffic):
        return [f.col(name) for name in (*SUMS, HIGHEST)]
    stands_for = weight(traffic)
    again = is_operation(RECEIVE) & ((f.col("attempt") > 1) | f.col("topic").startswith(RETRY_PREFIX))
    moving = f.col("messages") > 0
    of_row = {
        "requests": stands_for,
        "errors": f.when(~f.col("ok"), stands_for),
        **{name: f.col(name) * stands_for for name in ("messages", "bytes_in", "bytes_out", "broker_us")},
        "moving": f.when(moving, stands_for),
        "repeats": f.when(moving & again, stands_for),
        "redelivered": f.when(again, f.col("messages") * stands_for),
    }
    sums = [f.coalesce(column, f.lit(0.0)).alias(name) for name, column in of_row.items()]
    return [*sums, f.when(is_operation(RECEIVE), f.col(HIGHEST)).alias(HIGHEST)]


def added() -> list[Column]:
    """Return the aggregates that add measures."""
    return [*(f.sum(name).alias(name) for name in SUMS), f.max(HIGHEST).alias(HIGHEST)]


def whole(name: str) -> Column:
    """Round a sum to a whole number."""
    return f.round(f.col(name)).cast("long").alias(name)


def require(frame: DataFrame, *columns: str) -> None:
    """Raise ValueError if a column is missing, which usually means a roll-up without it."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        have = ", ".join(frame.columns)
        raise ValueError(f"this needs the column {', '.join(missing)}; the frame has {have}")


def _long(rolled: DataFrame) -> DataFrame:
    """Return a row per bucket; the sums stay with the first one, so that they are counted once."""
    first = f.coalesce(f.col("place"), f.lit(0)) == 0
    kept = [name for name in rolled.columns if name not in ("latency", CLIENTS, *SUMS)]
    sketch = [CLIENTS] if CLIENTS in rolled.columns else []
    exploded = rolled.select(*kept, *sketch, *SUMS, f.posexplode_outer("latency").alias("place", "entry"))
    return exploded.select(
        *kept,
        *(f.when(first, f.col(name)).alias(name) for name in sketch),
        *(f.when(first, f.col(name)).otherwise(0.0).alias(name) for name in SUMS),
        f.col("entry.bucket").alias("bucket"),
        f.col("entry.count").alias("count"),
    )

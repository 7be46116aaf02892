"""Inventory: connected clients, outdated versions, and progress of the migration to gRPC."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.facts import Newest
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import weight
from analytics.transforms.tenants import owner
from analytics.transforms.versions import numbers


def clients(requests: DataFrame) -> DataFrame:
    """Return every client id with its latest identity, groups, topics and activity.

    Columns: client_id, protocol, language, version, address, groups (sorted), topics (number), first_seen, last_seen,
    requests, errors.
    """
    stands_for = weight(requests)
    last = [f.max_by(name, "time").alias(name) for name in ("language", "version", "address")]
    return (
        requests.where(f.col("client_id").isNotNull())
        .groupBy("client_id", "protocol")
        .agg(
            *last,
            f.sort_array(f.collect_set("group")).alias("groups"),
            f.count_distinct("topic").alias("topics"),
            f.min("time").alias("first_seen"),
            f.max("time").alias("last_seen"),
            f.round(f.sum(stands_for)).cast("long").alias("requests"),
            f.round(f.sum(f.when(f.col("ok"), 0.0).otherwise(stands_for))).cast("long").alias("errors"),
        )
    )


def versions(requests: DataFrame, newest: Newest | None = None) -> DataFrame:
    """Return the versions in use.

    newest: given by the operator, languages in any case; by default the newest seen of the language and protocol.

    Columns: protocol, language, version, newest, outdated, clients, requests, last_seen.
    """
    seen = (
        clients(requests)
        .groupBy("protocol", "language", "version")
        .agg(
            f.count_distinct("client_id").alias("clients"),
            f.sum("requests").alias("requests"),
            f.max("last_seen").alias("last_seen"),
        )
    )
    of_sdk = Window.partitionBy("protocol", "language")
    best = f.max_by("version", numbers(f.col("version"))).over(of_sdk)
    compared = seen.withColumn("newest", f.coalesce(_given(newest or {}), best))
    outdated = f.coalesce(numbers(f.col("version")) < numbers(f.col("newest")), f.lit(False)).alias("outdated")
    return compared.select("protocol", "language", "version", "newest", outdated, "clients", "requests", "last_seen")


def _given(newest: Newest) -> Column:
    column: Column = f.lit(None).cast("string")
    for protocol, versions_of in newest.items():
        for language, version in versions_of.items():
            its = (f.col("protocol") == protocol) & (f.upper("language") == language.upper())
            column = f.when(its, version).otherwise(column)
    return column


def migration(requests: DataFrame, every: str | None = "1 day", zone: str = "UTC") -> DataFrame:
    """Return the share of each tenant's traffic that still uses remoting. grpc_share is of the messages; client counts
    are exact.

    Columns: [time], tenant, clients_remoting, clients_grpc, messages_remoting, messages_grpc, grpc_share.
    """
    columns = [*named(every), "tenant"]
    known = requests.where(f.col("client_id").isNotNull() & f.col("protocol").isin("remoting", "grpc"))
    moved = (f.col("messages") * weight(requests)).alias("messages")
    # Group by client first: the result is much smaller, and a plain count follows.
    by_client = (
        known.select(*keys(every, zone), owner().alias("tenant"), "protocol", "client_id", moved)
        .groupBy(*columns, "protocol", "client_id")
        .agg(f.sum("messages").alias("messages"))
    )
    sums = by_client.groupBy(*columns).agg(
        *(f.count_if(f.col("protocol") == name).alias(f"clients_{name}") for name in ("remoting", "grpc")),
        *(
            f.round(f.sum(f.when(f.col("protocol") == name, f.col("messages")).otherwise(0.0)))
            .cast("long")
            .alias(f"messages_{name}")
            for name in ("remoting", "grpc")
        ),
    )
    share = f.try_divide("messages_grpc", f.col("messages_remoting") + f.col("messages_grpc"))
    return sums.withColumn("grpc_share", share)

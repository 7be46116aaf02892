"""The compact tables by Spark, or by DuckDB where records are files of this machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from analytics.incidents.tables import HOURS, Query, Tables, collect, connections_view, main_span, requests_view, within

# Columns of records that the tables are made of.
_REQUESTS = (
    *("time", "weight", "messages", "code", "topic", "group", "broker", "queue", "replica", "client_id", "address"),
    *("protocol", "language", "version", "response", "ok", "attempt", "latency_us", "delay_ms", "key_hash"),
    "bytes_in",
)
# Functions of Spark under the same name. Both estimate percentiles.
MACROS = (
    "CREATE MACRO substring_index(text, mark, n) AS"
    " CASE n WHEN 1 THEN split_part(text, mark, 1) ELSE array_to_string(string_split(text, mark)[1:n], mark) END",
    "CREATE MACRO percentile_approx(value, share) AS approx_quantile(value, share)",
)


def by_spark(requests: DataFrame, connections: DataFrame) -> Tables:
    """Return the tables of records, with one pass over the files: the columns that matter are kept meanwhile."""
    with spark_query(requests, connections) as query:
        return collect(query, query)


@contextmanager
def spark_query(requests: DataFrame, connections: DataFrame) -> Iterator[Query]:
    """Yield a function that runs statements over the views `requests` and `ends` of tables.py."""
    spark = requests.sparkSession
    requests.select(*_REQUESTS).withColumnRenamed("group", "grp").createOrReplaceTempView("records")
    connections.createOrReplaceTempView("connection_records")
    kept = spark.sql(requests_view("unix_micros(time)")).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept.createOrReplaceTempView("requests")
        kept.where(within(main_span(_pandas(spark, HOURS)))).createOrReplaceTempView("requests")
        spark.sql(connections_view("unix_micros(time)")).createOrReplaceTempView("ends")
        yield lambda statement: _pandas(spark, statement)
    finally:
        kept.unpersist()
        for name in ("records", "connection_records", "requests", "ends"):
            spark.catalog.dropTempView(name)


def _pandas(spark: SparkSession, statement: str) -> pd.DataFrame:
    frame: pd.DataFrame = spark.sql(statement).toArrow().to_pandas()
    return frame


def by_duckdb(requests: Sequence[str], connections: Sequence[str], where: str = "TRUE") -> Tables:
    """Return the tables of Parquet files of this machine. where: condition on `time`. Raises duckdb.Error."""
    with duckdb_query(requests, connections, where) as query:
        return collect(query, query)


@contextmanager
def duckdb_query(requests: Sequence[str], connections: Sequence[str], where: str = "TRUE") -> Iterator[Query]:
    """Yield a function that runs statements over the views `requests` and `ends` of tables.py."""
    import duckdb

    with duckdb.connect() as database:
        for macro in MACROS:
            database.execute(macro)
        add_view(database, "records", requests, where, '* RENAME ("group" AS grp)')
        if connections:
            add_view(database, "connection_records", connections, where, "*")
        else:
            database.execute(f"CREATE VIEW connection_records AS SELECT {_NO_CONNECTIONS} WHERE FALSE")
        database.execute(f"CREATE TABLE requests AS {requests_view('epoch_us(time)')}")
        database.execute(f"CREATE VIEW ends AS {connections_view('epoch_us(time)')}")

        def query(statement: str) -> pd.DataFrame:
            # Arrow makes one Python object of equal texts: clients and topics recur in every period.
            frame: pd.DataFrame = database.sql(statement).to_arrow_table().to_pandas()
            return frame

        database.execute(f"DELETE FROM requests WHERE NOT ({within(main_span(query(HOURS)))})")
        yield query


_NO_CONNECTIONS = "now() AS time, " + ", ".join(
    f"NULL::VARCHAR AS {name}"
    for name in ("event", "cause", "replica", "client_id", "address", "protocol", "language", "version")
)


def add_view(database: Any, name: str, files: Sequence[str], where: str, columns: str) -> None:
    """Create a view of Parquet files. where: condition on `time`; columns: of the SELECT."""
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    database.execute(
        f"CREATE VIEW {name} AS SELECT {columns} FROM"
        f" read_parquet([{listed}], hive_partitioning=false, union_by_name=true) WHERE {where}"
    )

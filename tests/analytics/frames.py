"""Small frames of traffic records, and their contents."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from analytics.schema import CONNECTIONS, MEMBERS, REQUESTS, struct

Row = dict[str, Any]

# A Monday.
DAY = datetime(2026, 10, 19, tzinfo=UTC)

_REQUEST: Row = {
    "schema": 1,
    "replica": "gantry-0",
    "worker": 0,
    "protocol": "grpc",
    "code": "SendMessage",
    "client_id": "client-1",
    "address": "10.0.0.1",
    "language": "JAVA",
    "version": "5.0.7",
    "topic": "shop%orders",
    "broker": "broker-a",
    "messages": 1,
    "bytes_in": 100,
    "bytes_out": 0,
    "latency_us": 1000,
    "response": 20000,
    "ok": True,
    "tls": False,
}
_RECEIVE: Row = {
    "code": "ReceiveMessage",
    "group": "shop%orders-billing",
    "attempt": 1,
    "bytes_in": 0,
    "bytes_out": 100,
}
_CONNECTION: Row = {
    "schema": 1,
    "replica": "gantry-0",
    "worker": 0,
    "protocol": "remoting",
    "event": "open",
    "connection": 1,
    "address": "10.0.0.1",
    "port": 40000,
    "listener": "main",
    "tls": False,
}
_MEMBER: Row = {
    "schema": 1,
    "replica": "gantry-0",
    "worker": 0,
    "protocol": "grpc",
    "event": "joined",
    "group": "billing",
    "kind": "consumer",
    "client_id": "client-1",
}


def at(minutes: float = 0.0, seconds: float = 0.0) -> datetime:
    """Return a time of that Monday."""
    return DAY + timedelta(minutes=minutes, seconds=seconds)


def send(time: datetime, **columns: Any) -> Row:
    return _REQUEST | {"time": time} | columns


def receive(time: datetime, **columns: Any) -> Row:
    return _REQUEST | _RECEIVE | {"time": time} | columns


def failed(time: datetime, **columns: Any) -> Row:
    return send(time, ok=False, response=50001, messages=0, **columns)


def connection(time: datetime, **columns: Any) -> Row:
    return _CONNECTION | {"time": time} | columns


def member(time: datetime, **columns: Any) -> Row:
    return _MEMBER | {"time": time} | columns


def requests(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return _frame(spark, rows, REQUESTS)


def connections(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return _frame(spark, rows, CONNECTIONS)


def members(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return _frame(spark, rows, MEMBERS)


def _frame(spark: SparkSession, rows: Sequence[Row], table: Any) -> DataFrame:
    schema = struct(table)
    frame = spark.createDataFrame([tuple(row.get(name) for name in schema.fieldNames()) for row in rows], schema)
    # Spark groups and joins a single known partition without shuffles.
    return frame.coalesce(1)


def expected(spark: SparkSession, columns: str, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Return a frame for comparison. columns: names and types in Spark's DDL."""
    return spark.createDataFrame(list(rows), columns)


def contents(frame: DataFrame) -> list[Row]:
    """Return the rows as dicts, with times as aware UTC."""
    columns = [
        f"unix_micros(`{name}`) AS `{name}`" if kind == "timestamp" else f"`{name}`" for name, kind in frame.dtypes
    ]
    times = [name for name, kind in frame.dtypes if kind == "timestamp"]
    rows = [row.asDict(recursive=True) for row in frame.selectExpr(*columns).collect()]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[name])
    return rows


def only(frame: DataFrame) -> Row:
    """Return the only row."""
    (row,) = contents(frame)
    return row

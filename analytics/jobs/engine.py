"""The engine of a question: DuckDB for plain files of this machine, Spark for all others, with the same SQL."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from analytics import records
from analytics.incidents.engines import MACROS, add_view, by_spark, duckdb_query, spark_query
from analytics.incidents.local_files import local_files
from analytics.incidents.tables import Query, Tables, operation_column, tenant_column
from analytics.jobs.local_tables import condition, local_tables, plain_files
from analytics.record_errors import Skipped, no_requests
from analytics.schema import table
from analytics.transforms.operations import WEIGHT
from proxy.observability.records.schema import Kind

_log = logging.getLogger("gantry.analytics")
Sessions = Callable[[], AbstractContextManager[SparkSession]]
_TABLES = ("requests", "connections", "members")
# Views for users, in addition to the records themselves (whose column `group` is `grp`).
_VIEWS = {
    "hourly": "SELECT date_trunc('hour', time) AS hour, protocol, operation, tenant, topic, grp,"
    " SUM(requests) AS requests,"
    " SUM(errors) AS errors, SUM(messages) AS messages FROM counted GROUP BY 1, 2, 3, 4, 5, 6",
    "tenants": "SELECT date_trunc('hour', time) AS hour, tenant, SUM(requests) AS requests, SUM(errors) AS errors,"
    " SUM(messages) AS messages, SUM(bytes_in) AS bytes_in, SUM(bytes_out) AS bytes_out FROM counted GROUP BY 1, 2",
}


def _counted() -> str:
    return f"""
SELECT time, protocol, topic, grp, {operation_column()} AS operation, {tenant_column()} AS tenant,
  {WEIGHT} AS requests, CASE WHEN ok THEN 0.0 ELSE {WEIGHT} END AS errors,
  COALESCE(messages, 0) * {WEIGHT} AS messages, COALESCE(bytes_in, 0) * {WEIGHT} AS bytes_in,
  COALESCE(bytes_out, 0) * {WEIGHT} AS bytes_out FROM requests"""


def tables(sessions: Sessions, root: str, since: datetime | None, until: datetime | None) -> Tables:
    """Return the compact tables. Raises NoRecords."""
    local = local_tables(root, since, until)
    if local is not None:
        _warn(local[1])
        return local[0]
    with sessions() as spark:
        requests, connections = (_read(spark, root, since, until, name) for name in ("requests", "connections"))
        return by_spark(requests.frame, connections.frame)


@contextmanager
def engine(sessions: Sessions, root: str, since: datetime | None, until: datetime | None) -> Iterator[Query]:
    """Yield a function that runs statements over the view `requests` of incidents/tables.py. Raises NoRecords."""
    local = plain_files(root, since, until)
    if local is not None:
        requests, connections = local
        _warn([*requests.skipped, *connections.skipped])
        with duckdb_query(requests.paths, connections.paths, condition(since, until)) as query:
            if not query("SELECT COUNT(*) AS n FROM requests")["n"].iloc[0]:
                raise no_requests(root, since, until)
            yield query
        return
    with sessions() as spark:
        read, ends = (_read(spark, root, since, until, name) for name in ("requests", "connections"))
        with spark_query(read.frame, ends.frame) as query:
            yield query


def select(
    sessions: Sessions, root: str, since: datetime | None, until: datetime | None, statement: str
) -> pd.DataFrame:
    """Return the rows of a user's statement. Raises NoRecords, and ValueError for a statement that does not run."""
    if plain_files(root, since, until) is not None:
        return _by_duckdb(root, since, until, statement)
    with sessions() as spark:
        for name in _TABLES:
            read = records.read(spark, root, name, since=since, until=until)
            _warn(read.remarks)
            read.frame.withColumnsRenamed({"group": "grp"}).createOrReplaceTempView(name)
        spark.sql(_counted()).createOrReplaceTempView("counted")
        for name, text in _VIEWS.items():
            spark.sql(text).createOrReplaceTempView(name)
        frame: pd.DataFrame = spark.sql(statement).toArrow().to_pandas()
        return frame


def _by_duckdb(root: str, since: datetime | None, until: datetime | None, statement: str) -> pd.DataFrame:
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for macro in MACROS:
            database.execute(macro)
        for name in _TABLES:
            files = local_files(Path(root), name, since, until)
            _warn(files.skipped)
            if files.paths:
                renamed = '* RENAME ("group" AS grp)' if name != "connections" else "*"
                add_view(database, name, files.paths, condition(since, until), renamed)
                _add_missing(database, name)
        database.execute(f"CREATE VIEW counted AS {_counted()}")
        for name, text in _VIEWS.items():
            database.execute(f"CREATE VIEW {name} AS {text}")
        # The statement may read the records, and nothing else of this machine.
        database.execute(f"SET allowed_directories = ['{Path(root).resolve().as_posix()}', '{Path(root).as_posix()}']")
        database.execute("SET enable_external_access = false")
        try:
            return database.execute(statement).df()
        except duckdb.Error as error:
            raise ValueError(f"the statement does not run: {str(error).splitlines()[0]}") from None


def _add_missing(database: Any, name: str) -> None:
    """Add the columns that no file of a view has, because all are of a former version of the schema, as nulls."""
    known = set(database.sql(f"SELECT * FROM {name} LIMIT 0").columns)
    columns = {"grp" if column.name == "group" and "grp" in known else column.name for column in table(name).columns}
    missing = sorted(columns - known)
    if missing:
        kinds = {column.name: _DUCKDB.get(column.kind, "VARCHAR") for column in table(name).columns}
        added = "".join(f", NULL::{kinds[column]} AS {column}" for column in missing)
        database.execute(f"ALTER VIEW {name} RENAME TO former_{name}")
        database.execute(f"CREATE VIEW {name} AS SELECT *{added} FROM former_{name}")


_DUCKDB = {
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.SHORT: "SMALLINT",
    Kind.INT: "INTEGER",
    Kind.LONG: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
}


def _read(spark: SparkSession, root: str, since: datetime | None, until: datetime | None, name: str) -> records.Records:
    found = records.read(spark, root, name, since=since, until=until)
    _warn(found.remarks)
    if name == "requests" and (not found.rows or found.frame.isEmpty()):
        raise no_requests(root, since, until, found.remarks)
    return found


def _warn(skipped: Sequence[Skipped]) -> None:
    for each in skipped:
        _log.error("not read completely: %s: %s", each.path, each.reason)

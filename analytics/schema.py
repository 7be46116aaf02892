"""Spark's types of the traffic records, derived from proxy/observability/records/schema.py."""

from pyspark.sql import types as t

from proxy.observability.records.schema import CONNECTIONS, MEMBERS, REQUESTS, TABLES, Kind, Table

__all__ = ["CONNECTIONS", "MEMBERS", "PARTITIONS", "REQUESTS", "TABLES", "struct", "table"]

_TYPES: dict[Kind, t.DataType] = {
    Kind.TIMESTAMP: t.TimestampType(),
    Kind.STRING: t.StringType(),
    Kind.SHORT: t.ShortType(),
    Kind.INT: t.IntegerType(),
    Kind.LONG: t.LongType(),
    Kind.DOUBLE: t.DoubleType(),
    Kind.BOOLEAN: t.BooleanType(),
}

# Partition columns, from directory names: UTC date and hour of the column `time`.
PARTITIONS = (t.StructField("date", t.DateType()), t.StructField("hour", t.IntegerType()))


def table(name: str) -> Table:
    """Return the table of that name. Raises ValueError, which lists the tables."""
    for each in TABLES:
        if each.name == name:
            return each
    raise ValueError(f"no table {name!r} among the traffic records: {', '.join(each.name for each in TABLES)}")


def struct(definition: Table, *, partitions: bool = False) -> t.StructType:
    """Return a table's columns as Spark types; `partitions` appends `date` and `hour`.

    Every column is nullable: files of an older schema version lack columns, and Parquet readers do not enforce it.
    """
    columns = [t.StructField(column.name, _TYPES[column.kind]) for column in definition.columns]
    return t.StructType([*columns, *(PARTITIONS if partitions else ())])

"""Arrow types of the schema, and conversion of values to its columns."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from proxy.observability.records.schema import VERSION, VERSION_KEY, Column, Kind, Table

TYPES: dict[Kind, pa.DataType] = {
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.STRING: pa.string(),
    Kind.SHORT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
}
_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64, Kind.TIMESTAMP: 64}
# Doubles hold every integer up to this power of two.
_EXACT_BITS = 53
# Characters of a text that are recorded. Clients may send names of any length.
MAX_TEXT_LENGTH = 512
# Microseconds.
_HOUR = 3_600_000_000
# Lone surrogates, which UTF-8 cannot encode.
_surrogates = re.compile("[\ud800-\udfff]")
_CONVERSION_ERRORS = (pa.ArrowException, OverflowError, ValueError, TypeError)


def schema(table: Table) -> pa.Schema:
    """Return a table's schema, with the version in its metadata."""
    fields = [pa.field(column.name, TYPES[column.kind], column.nullable) for column in table.columns]
    return pa.schema(fields, {VERSION_KEY: str(VERSION)})


def array(values: Sequence[Any], column: Column) -> pa.Array:
    """Return a column of values. A value that cannot be converted becomes null, or 0 or "" in a non-null column."""
    kind = TYPES[column.kind]
    try:
        converted = pa.array(values, kind)
    except _CONVERSION_ERRORS:
        converted = pa.array([_convert(value, column, kind) for value in values], kind)
    if column.kind is Kind.STRING and converted.nbytes > MAX_TEXT_LENGTH:
        longest = pc.max(pc.utf8_length(converted)).as_py() or 0
        if longest > MAX_TEXT_LENGTH:
            converted = pc.utf8_slice_codeunits(converted, 0, MAX_TEXT_LENGTH)
    return converted


def from_doubles(doubles: pa.Array, column: Column) -> pa.Array:
    """Return a column of numbers given as doubles. NaN, or a number out of range, is converted as in `array`."""
    kind = TYPES[column.kind]
    if column.kind is Kind.DOUBLE:
        return pc.if_else(pc.is_nan(doubles), None, doubles)
    try:
        # Usually all numbers convert; for a few thousand of them, further calls would cost more than this one.
        return doubles.cast(pa.int64()).cast(kind)
    except pa.ArrowInvalid:
        pass
    bound = 2.0 ** min(_BITS[column.kind] - 1, _EXACT_BITS)
    # Both comparisons are false for NaN.
    in_range = pc.and_(pc.greater_equal(doubles, -bound), pc.less(doubles, bound))
    return pc.if_else(in_range, doubles, None if column.nullable else 0.0).cast(pa.int64()).cast(kind)


def _convert(value: Any, column: Column, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        value = _surrogates.sub("\ufffd", value)
    try:
        return pa.scalar(value, kind).as_py()
    except _CONVERSION_ERRORS:
        return None if column.nullable else "" if column.kind is Kind.STRING else 0


def by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each hour, with the hour since 1970."""
    hours = pc.floor(pc.divide(batch.column("time").cast(pa.int64()).cast(pa.float64()), _HOUR)).cast(pa.int64())
    distinct = sorted(hours.unique().to_pylist())
    if len(distinct) == 1:
        yield distinct[0], batch
        return
    for hour in distinct:
        yield hour, batch.filter(pc.equal(hours, hour))


def rows(table: Table, values: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Return a batch of rows, each with a value for every column."""
    columns = [array(each, column) for each, column in zip(zip(*values, strict=True), table.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema(table))

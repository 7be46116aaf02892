"""The schema as Arrow has it, and columns of it."""

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
# Beyond this power of two a double does not hold every whole number.
_EXACT = 53
# Characters that are kept of a text: clients can send names of any length.
LONGEST = 512
_HOUR = 3_600_000_000
# Half of a pair of UTF-16 is no text of its own.
_surrogates = re.compile("[\ud800-\udfff]")
_WRONG = (pa.ArrowException, OverflowError, ValueError, TypeError)


def schema(table: Table) -> pa.Schema:
    """A table's schema, with its version in the metadata."""
    fields = [pa.field(column.name, TYPES[column.kind], column.nullable) for column in table.columns]
    return pa.schema(fields, {VERSION_KEY: str(VERSION)})


def array(values: Sequence[Any], column: Column) -> pa.Array:
    """A column of these values; one that does not fit becomes null, or nothing's value where there is no null."""
    kind = TYPES[column.kind]
    try:
        made = pa.array(values, kind)
    except _WRONG:
        made = pa.array([_fitting(value, column, kind) for value in values], kind)
    if column.kind is Kind.STRING and made.nbytes > LONGEST and (pc.max(pc.utf8_length(made)).as_py() or 0) > LONGEST:
        made = pc.utf8_slice_codeunits(made, 0, LONGEST)
    return made


def fitting(doubles: pa.Array, column: Column) -> pa.Array:
    """A column of numbers that came as doubles; NaN, or one that does not fit, as in `array`."""
    kind = TYPES[column.kind]
    if column.kind is Kind.DOUBLE:
        return pc.if_else(pc.is_nan(doubles), None, doubles)
    try:
        # Mostly all do, and each call costs more than what it does to a few thousand numbers.
        return doubles.cast(pa.int64()).cast(kind)
    except pa.ArrowInvalid:
        pass
    most = 2.0 ** min(_BITS[column.kind] - 1, _EXACT)
    # Of NaN neither holds.
    fits = pc.and_(pc.greater_equal(doubles, -most), pc.less(doubles, most))
    return pc.if_else(fits, doubles, None if column.nullable else 0.0).cast(pa.int64()).cast(kind)


def _fitting(value: Any, column: Column, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        value = _surrogates.sub("\ufffd", value)
    try:
        return pa.scalar(value, kind).as_py()
    except _WRONG:
        return None if column.nullable else "" if column.kind is Kind.STRING else 0


def by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in parts, each with the hours since 1970 that its rows' times are in."""
    hours = pc.floor(pc.divide(batch.column("time").cast(pa.int64()).cast(pa.float64()), _HOUR)).cast(pa.int64())
    distinct = sorted(hours.unique().to_pylist())
    if len(distinct) == 1:
        yield distinct[0], batch
        return
    for hour in distinct:
        yield hour, batch.filter(pc.equal(hours, hour))


def rows(table: Table, made: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Rows, each with a value for every column, as a batch."""
    columns = [array(values, column) for values, column in zip(zip(*made, strict=True), table.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema(table))

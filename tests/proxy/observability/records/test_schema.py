"""Schema of the traffic records."""

import pyarrow as pa
import pytest

from proxy.observability.records import arrow
from proxy.observability.records.schema import MEMBERS, REQUESTS, TABLES, VERSION, Kind, Table
from tests.proxy.observability.records.samples import batch, observation


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_columns_are_unique_and_tables_begin_with_the_same_ones(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert names[:5] == ["schema", "time", "replica", "worker", "protocol"]
    assert not {"date", "hour"} & set(names), "partitions have these names"


def test_the_arrow_schema_has_types_and_version() -> None:
    schema = arrow.schema(REQUESTS)
    assert schema.metadata == {b"gantry.schema": str(VERSION).encode()}
    assert schema.field("time") == pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False)
    assert schema.field("topic") == pa.field("topic", pa.string())
    assert schema.field("weight") == pa.field("weight", pa.float64())
    assert set(arrow.TYPES) == set(Kind)


def test_version_1_is_unchanged() -> None:
    # Readers rely on it. A new column is added at the end, with a new version.
    assert VERSION == 1
    assert " ".join(column.name for column in REQUESTS.columns) == (
        "schema time replica worker protocol code client_id address language version topic group broker queue messages "
        "bytes_in bytes_out latency_us broker_us response ok attempt delay_ms tls trace_id key_hash weight"
    )
    assert " ".join(column.name for column in MEMBERS.columns) == (
        "schema time replica worker protocol event group kind client_id address language version cause"
    )


def test_a_batch_has_the_schema() -> None:
    rows = batch(observation())
    assert rows.schema.equals(arrow.schema(REQUESTS), check_metadata=True)
    rows.validate(full=True)

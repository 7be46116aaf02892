"""Records as Parquet files, in the layout of the proxy's writer.

<root>/<table>/date=YYYY-MM-DD/hour=HH/<replica>-<worker>-<start in µs>-<sequence>.parquet, in UTC.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from proxy.observability.records.schema import Table

ROW_GROUP = 65_536


def directory(root: Path, table: Table, begin: datetime) -> Path:
    """Return the partition of the hour that begins at that time."""
    utc = begin.astimezone(UTC)
    return root / table.name / f"date={utc:%Y-%m-%d}" / f"hour={utc:%H}"


def write(root: Path, table: Table, begin: datetime, rows: pa.Table, name: str) -> None:
    """Write one file of one hour. name: without `.parquet`."""
    place = directory(root, table, begin)
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f"_{name}.parquet.tmp"
    pq.write_table(
        rows,
        hidden,
        version="2.6",
        compression="zstd",
        use_dictionary=[column.name for column in table.columns if column.dictionary],
        row_group_size=ROW_GROUP,
        write_page_checksum=True,
    )
    hidden.rename(place / f"{name}.parquet")


def name(replica: str, worker: int, begin: datetime, sequence: int) -> str:
    """Return a file's name, unique in its partition."""
    return (
        f"{replica}-{worker}-{int((begin - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))}-{sequence}"
    )

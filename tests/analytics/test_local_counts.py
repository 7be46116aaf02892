"""Row counts of local files equal those of Spark, and leave what they cannot count to Spark."""

import dataclasses
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import records
from analytics.local_counts import local_counts
from analytics.records import partition_begin
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write


def _fill(root: Path) -> list[str]:
    """Write files of three hours, one with a row of another hour, in a directory whose name is escaped in URIs."""
    for minute in (1, 61, 121):
        write(root, [kit.send(kit.at(minute)), kit.send(kit.at(minute + 1))])
    file = sorted((root / "requests").rglob("*.parquet"))[0]
    rows = pq.read_table(file, partitioning=None)
    stray = pa.concat_tables(
        [rows, pq.read_table(sorted((root / "requests").rglob("*.parquet"))[1], partitioning=None)]
    )
    pq.write_table(stray, file.with_name("stray.parquet"))
    return [path.as_uri() for path in sorted((root / "requests").rglob("*.parquet"))]


def test_counts_equal_those_of_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "some records"
    _fill(root)
    without_spark = records.read(spark, str(root))
    monkeypatch.setattr(records, "local_counts", lambda hours: {})
    by_spark = records.read(spark, str(root))
    for each in dataclasses.fields(records.Records):
        if each.name != "frame":
            assert getattr(without_spark, each.name) == getattr(by_spark, each.name), each.name
    assert (without_spark.rows, len(without_spark.strays)) == (8, 1)


def test_whole_files_need_no_job_of_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(tmp_path)
    monkeypatch.setattr(records, "_row_counts", None)
    assert records.read(spark, str(tmp_path)).files == 4


def test_files_that_are_not_plain_are_left_to_spark(tmp_path: Path) -> None:
    whole, damaged, *_ = uris = _fill(tmp_path)
    content = Path(unquote(urlsplit(damaged).path))
    rows = pq.read_table(content, partitioning=None)
    pq.write_table(rows, content, write_page_checksum=True, compression="none", use_dictionary=False)
    metadata = pq.ParquetFile(content).metadata.row_group(0)
    times = metadata.column(1)
    assert times.path_in_schema == "time"
    changed = bytearray(content.read_bytes())
    # The last byte of the page.
    changed[times.data_page_offset + times.total_compressed_size - 1] ^= 255
    content.write_bytes(changed)
    naive = tmp_path / "naive.parquet"
    pq.write_table(rows.set_column(1, "time", rows["time"].cast(pa.timestamp("us"))), naive)
    (tmp_path / "text.parquet").write_text("no Parquet")
    others = [naive.as_uri(), (tmp_path / "text.parquet").as_uri(), "s3a://bucket/a.parquet"]
    found = local_counts((uri, partition_begin(uri)) for uri in [*uris, *others])
    assert whole in found
    assert not {damaged, *others} & found.keys()

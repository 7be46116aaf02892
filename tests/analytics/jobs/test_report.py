"""The report as a job: what it makes of little, and of nothing."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.report import Order, report
from analytics.records import NoRecords
from tests.analytics.jobs.kit import write
from tests.analytics.kit import at, send


def test_nothing_gets_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="there is no directory"):
        report(spark, str(tmp_path / "none"), str(tmp_path / "out"))
    write(tmp_path, [send(at(5))])
    with pytest.raises(NoRecords, match=r"no records of requests in .* since 2026-10-20"):
        report(spark, str(tmp_path), str(tmp_path / "out"), Order(since=at(1440)))
    with pytest.raises(ValueError, match="is no time zone"):
        report(spark, str(tmp_path), str(tmp_path / "out"), Order(zone="Mars"))
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(600)
def test_one_row_with_nothing_in_it_makes_a_page(spark: SparkSession, tmp_path: Path) -> None:
    """All that may be null is null; a damaged file lies beside it."""
    unknown = dict.fromkeys(("protocol", "client_id", "language", "version", "topic", "broker"))
    write(tmp_path, [send(at(5), **unknown)])
    damaged = next(tmp_path.rglob("*.parquet")).with_name("damaged.parquet")
    damaged.write_bytes(b"half")
    made = report(spark, str(tmp_path), str(tmp_path / "out"), Order(title="One", zone="Asia/Kolkata"))
    page = Path(made.page).read_text()
    assert "Monday 19 October 2026, 05:35 to 05:35 (Asia/Kolkata)" in page
    assert "Nothing stood out" in page
    assert "damaged.parquet: it is no Parquet file" in page
    assert pq.read_table(tmp_path / "out/tables/load.parquet").to_pylist() == [
        {
            "time": at(5),
            "protocol": None,
            "requests": 1,
            "errors": 0,
            "messages": 1,
            "bytes_in": 100,
            "bytes_out": 0,
            "error_rate": 0.0,
        }
    ]
    # Again, over what is there.
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "tables"]

"""The report as a job, with few records and with none."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import facts
from analytics.jobs.report import Order, report
from analytics.record_errors import NoRecords
from proxy.traffic_rules import parsing as rules
from tests.analytics.frames import at, send
from tests.analytics.jobs.record_files import write

RULES = """
[[rule]]
name = "few"
kind = "limit"
messages = 2

[[rule]]
name = "by-certificate"
kind = "limit"
requests = 1
match = { subjects = ["CN=a"] }

[[rule]]
name = "closed"
kind = "deny"
"""
FACTS = """
[limits]
requests_per_s = 7
messages_per_s = 7
bytes_per_s = 7
replicas = 1
headroom = 1.0
"""


def test_report_without_records_raises_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="there is no directory"):
        report(spark, str(tmp_path / "none"), str(tmp_path / "out"))
    write(tmp_path, [send(at(5))])
    with pytest.raises(NoRecords, match=r"no records of requests in .* since 2026-10-20"):
        report(spark, str(tmp_path), str(tmp_path / "out"), Order(since=at(1440)))
    with pytest.raises(ValueError, match="is no time zone"):
        report(spark, str(tmp_path), str(tmp_path / "out"), Order(zone="Mars"))
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(600)
def test_report_of_one_row_of_nulls_is_a_page(spark: SparkSession, tmp_path: Path) -> None:
    """Every nullable column is null, and a damaged file lies beside the record. The page contains the rules and the
    facts.
    """
    unknown = dict.fromkeys(("protocol", "client_id", "language", "version", "topic", "broker"))
    write(tmp_path, [send(at(5), messages=3, **unknown)])
    damaged = next(tmp_path.rglob("*.parquet")).with_name("damaged.parquet")
    damaged.write_bytes(b"half")
    order = Order(title="One", zone="Asia/Kolkata", rules=rules.parse(RULES), facts=facts.parse(FACTS))
    made = report(spark, str(tmp_path), str(tmp_path / "out"), order)
    page = Path(made.page).read_text()
    assert "Monday 19 October 2026, 05:35 to 05:35 (Asia/Kolkata)" in page
    assert "No deviation from the usual traffic" in page
    assert "damaged.parquet: it is no Parquet file" in page
    assert pq.read_table(tmp_path / "out/tables/load.parquet").to_pylist() == [
        {
            "time": at(5),
            "protocol": None,
            "requests": 1,
            "errors": 0,
            "messages": 3,
            "bytes_in": 100,
            "bytes_out": 0,
            "error_rate": 0.0,
        }
    ]
    assert "Of 1 limit 1 would have been exceeded, by 1 subject." in page
    assert "Most affected: all together by few, 33 % of its messages refused (sends) or held (receives)." in page
    assert "by-certificate is not evaluated: request records do not contain subjects." in page
    assert "1 rule of other kinds is not evaluated." in page
    (hit,) = pq.read_table(tmp_path / "out/tables/quotas.parquet").to_pylist()
    assert (hit["rule"], hit["subject"], hit["peak"], hit["refused"], hit["first"]) == ("few", "*", 3.0, 1.0, at(5))
    assert {row["limit"] for row in pq.read_table(tmp_path / "out/tables/capacity.parquet").to_pylist()} == {7.0}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "tables"]

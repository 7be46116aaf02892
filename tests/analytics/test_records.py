"""Reading: damaged files are reported, old schemas completed, unneeded partitions not opened."""

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import generator
from analytics.generator.files import directory, name, write
from analytics.hadoop_paths import short
from analytics.record_errors import NoRecords, cause
from analytics.records import read, stream
from analytics.schema import REQUESTS, struct, table
from proxy.observability.records.arrow import schema
from proxy.observability.records.schema import TABLES
from tests.analytics import frames as kit


def _write(root: Path, begin: datetime, rows: list[kit.Row], sequence: int = 0) -> Path:
    """Write one file as the proxy does."""
    arrow = schema(REQUESTS)
    complete = [{field: row.get(field) for field in arrow.names} for row in rows]
    stem = name("gantry-0", 0, begin, sequence)
    write(root, REQUESTS, begin, pa.Table.from_pylist(complete, schema=arrow), stem)
    return directory(root, REQUESTS, begin) / f"{stem}.parquet"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three hours of twenty requests each, and a file that a writer still has open."""
    for hour in range(3):
        begin = kit.at(hour * 60)
        path = _write(tmp_path, begin, [kit.send(begin + timedelta(minutes=n)) for n in range(20)])
    (path.parent / f"_{path.name}.tmp").write_bytes(b"half of some")
    return tmp_path


def test_every_column_has_its_type(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A readable file causes no further job for a reason.
    monkeypatch.setattr("analytics.records._reason", None)
    records = read(spark, str(root))
    assert records.frame.schema.fieldNames() == [*(column.name for column in REQUESTS.columns), "date", "hour"]
    assert [field.dataType for field in records.frame.schema] == [
        field.dataType for field in struct(REQUESTS, partitions=True)
    ]
    assert (records.files, records.rows, records.skipped, dict(records.versions)) == (3, 60, (), {1: 60})
    row = kit.contents(records.frame.where("hour = 1").orderBy("time").limit(1))[0]
    assert (row["time"], row["topic"], row["ok"], row["weight"]) == (kit.at(60), "shop%orders", True, None)


def test_damaged_files_are_reported_and_left_out(spark: SparkSession, root: Path) -> None:
    good = next(root.rglob("*.parquet"))
    contents = good.read_bytes()
    place = good.parent
    (place / "half.parquet").write_bytes(contents[: len(contents) // 2])
    (place / "empty.parquet").write_bytes(b"")
    (place / "text.parquet").write_text("this is no Parquet file at all")
    records = read(spark, str(root))
    assert {short(each.path).rsplit("/", 1)[1] for each in records.skipped} == {
        "half.parquet",
        "empty.parquet",
        "text.parquet",
    }
    no_parquet = "it is no Parquet file, or only the beginning of one"
    assert [each.reason for each in records.skipped] == ["it is empty", no_parquet, no_parquet]
    assert (records.files, records.rows, records.frame.count()) == (3, 60, 60)


def test_thorough_read_finds_damage_inside_a_file(spark: SparkSession, root: Path) -> None:
    good = next(root.rglob("*.parquet"))
    bent = good.parent / "bent.parquet"
    shutil.copy(good, bent)
    contents = bytearray(bent.read_bytes())
    offset = pq.ParquetFile(bent).metadata.row_group(0).column(1).data_page_offset
    contents[offset + 20 : offset + 60] = bytes(40)
    bent.write_bytes(contents)
    # Never fatal, even if the damage is met while reading.
    assert read(spark, str(root)).frame.selectExpr("max(time)", "sum(latency_us)").count() == 1
    records = read(spark, str(root), thorough=True)
    assert [short(each.path).rsplit("/", 1)[1] for each in records.skipped] == ["bent.parquet"]
    assert records.frame.selectExpr("count(time)").head() == (60,)


def test_rows_of_another_hour_are_left_out_and_named(spark: SparkSession, root: Path) -> None:
    path = _write(root, kit.at(60), [kit.send(kit.at(minute)) for minute in (61, 5, 200)], 1)
    for thorough in (False, True):
        records = read(spark, str(root), thorough=thorough)
        assert [(each.path.rsplit("/", 1)[1], each.reason) for each in records.remarks] == [
            (path.name, "2 of its 3 rows lie in another hour than its directory's")
        ]
        assert (records.files, records.rows, records.frame.count(), records.skipped) == (4, 61, 61, ())


def test_reason_of_a_file_with_another_type_is_a_sentence(spark: SparkSession, root: Path) -> None:
    arrow = pa.schema([("schema", pa.int16()), ("time", pa.timestamp("us", tz="UTC")), ("latency_us", pa.string())])
    rows = pa.Table.from_pylist([{"schema": 1, "time": kit.at(1), "latency_us": "many"}], arrow)
    pq.write_table(rows, directory(root, REQUESTS, kit.at(0)) / "other.parquet")
    records = read(spark, str(root), thorough=True)
    assert [each.reason for each in records.skipped] == ["a column has another type than the schema"]
    assert records.frame.selectExpr("count(latency_us)").head() == (60,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "An error occurred while calling o368.collectToPython.\n: org.apache.spark.SparkException: Job aborted\n"
            "\tat org.apache.spark.X.y(X.scala:1)\nCaused by: java.io.IOException: No space left on device\n\t... 1",
            "No space left on device",
        ),
        (
            "[UNRESOLVED_COLUMN] no such column\n\nJVM stacktrace:\n\tat a.b(C.java:1)",
            "[UNRESOLVED_COLUMN] no such column",
        ),
        ("", "ValueError"),
    ],
)
def test_cause_is_one_line_without_a_stack_trace(text: str, sentence: str) -> None:
    assert cause(ValueError(text)) == sentence


def test_two_schema_versions_are_one_table(spark: SparkSession, root: Path) -> None:
    """One file predates the column `weight`; one has a column of a future version."""
    begin = kit.at(0)
    old = schema(REQUESTS).remove(schema(REQUESTS).get_field_index("weight"))
    new = schema(REQUESTS).append(pa.field("colour", pa.string()))
    for version, arrow in ((0, old), (2, new)):
        row = {field: kit.send(begin).get(field) for field in arrow.names} | {"schema": version}
        rows = pa.Table.from_pylist([row], schema=arrow)
        pq.write_table(rows, directory(root, REQUESTS, begin) / f"version-{version}.parquet")
    records = read(spark, str(root))
    assert (dict(records.versions), records.skipped) == ({0: 1, 1: 60, 2: 1}, ())
    assert records.frame.where("schema <> 1 AND weight IS NULL AND topic = 'shop%orders'").count() == 2


def test_a_span_prunes_partitions_and_cuts_rows(spark: SparkSession, root: Path) -> None:
    # The same instant in another zone.
    berlin = timezone(timedelta(hours=2))
    records = read(spark, str(root), since=kit.at(5).astimezone(berlin), until=kit.at(65))
    assert (records.files, records.rows) == (2, 40)
    assert records.frame.count() == 15 + 5
    assert read(spark, str(root), since=kit.at(60 * 24 * 9)).frame.count() == 0
    with pytest.raises(ValueError, match="names no time zone"):
        read(spark, str(root), since=datetime(2026, 10, 19))


def test_read_of_a_missing_place_raises_a_sentence(spark: SparkSession, root: Path) -> None:
    with pytest.raises(NoRecords, match=r"there is no directory .*/nowhere: it should hold requests/"):
        read(spark, str(root / "nowhere"))
    with pytest.raises(
        ValueError, match="no table 'request' among the traffic records: requests, connections, members"
    ):
        read(spark, str(root), "request")
    with pytest.raises(NoRecords, match="let the proxy write there first"):
        stream(spark, str(root), "members")
    empty = read(spark, str(root), "members")
    assert (empty.files, empty.frame.columns[:3], empty.frame.collect()) == (0, ["schema", "time", "replica"], [])


def test_read_of_only_damaged_files_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    place = directory(tmp_path, REQUESTS, kit.at(0))
    place.mkdir(parents=True)
    (place / "bad.parquet").write_bytes(b"PAR1")
    records = read(spark, str(tmp_path))
    assert (records.files, len(records.skipped), records.frame.count()) == (0, 1, 0)


def test_stream_reads_the_same_rows_as_batch(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    frame = stream(spark, str(root), options={"maxFilesPerTrigger": "1"})
    assert frame.columns == read(spark, str(root)).frame.columns
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 60


def test_tables_equal_the_schema_definition() -> None:
    assert [table(each.name) for each in TABLES] == list(TABLES)


def test_the_generator_is_deterministic_and_keeps_the_layout(tmp_path: Path) -> None:
    plan = generator.Plan(records=3000, days=1, tenants=2, seed=7)
    one, two = (tmp_path / place for place in ("one", "two"))
    truth = generator.generate(one, plan)
    again = generator.generate(two, plan)
    assert truth == again == generator.load(one)
    files = sorted(path.relative_to(one) for path in one.rglob("*.parquet"))
    assert files == sorted(path.relative_to(two) for path in two.rglob("*.parquet"))
    assert all((one / path).read_bytes() == (two / path).read_bytes() for path in files)
    assert truth.records["requests"] == pytest.approx(3000, rel=0.2)
    for each in TABLES:
        paths = [path for path in files if path.parts[0] == each.name]
        assert sum(pq.read_metadata(one / path).num_rows for path in paths) == truth.records[each.name]
        for path in paths:
            file = pq.ParquetFile(one / path)
            assert file.schema_arrow.equals(schema(each))
            assert file.schema_arrow.metadata[b"gantry.schema"] == b"1"
            hour = datetime.strptime("/".join(path.parts[1:3]), "date=%Y-%m-%d/hour=%H").replace(tzinfo=UTC)
            times = file.read(["time"])["time"].to_pylist()
            assert all(hour <= time < hour + timedelta(hours=1) for time in times)
    with pytest.raises(FileExistsError, match="choose an empty directory"):
        generator.generate(one, plan)


@pytest.mark.parametrize("wrong", [{"records": 0}, {"days": 0}, {"tenants": 0}, {"incidents": -1}])
def test_invalid_plan_raises_a_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
        generator.Plan(**wrong)
